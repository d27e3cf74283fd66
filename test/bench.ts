/** `npm run bench`: steps beside the least that does the same, in ratios; no judgement. */
import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import process from 'node:process'
import { pathToFileURL } from 'node:url'
import { calls, makeRoot, startServer, text } from './server.ts'

const TURNS = 1000
const END = 100 // turns, first and last, that are shown by themselves
const BATCH = 10 // turns of one loop, then as many of the other
const RUNS = 5
const STARTS = 7

/** Milliseconds of each turn; bytes after the first END turns, and after all. */
type Run = { times: number[]; memory: Record<number, { heap: number; peak: number }> }

const STEP = 'steps/04-subagent.ts'
// Since 22.18 a Node runs TypeScript by itself.
const { typescript } = process.features as { typescript?: unknown }
const LOOP = join(import.meta.dirname, 'bench-loop.ts')
const PROBE = pathToFileURL(join(import.meta.dirname, 'bench-probe.ts')).href
const root = makeRoot()
writeFileSync(join(root, 'note.txt'), 'A small file, read once in every turn.\n')
const packages = ['@anthropic-ai/sdk', 'dotenv', 'pino']
writeFileSync(join(root, 'imports.ts'), packages.map((p) => `import '${p}'\n`).join(''))

const children = new Set<ChildProcess>()
process.on('exit', () => {
  for (const child of children) child.kill('SIGKILL')
})

/** The command that runs a program by tsx, without its own start-up. */
const byTsx = (path: string, ...args: string[]) => {
  return [process.execPath, '--import', 'tsx', path, ...args]
}

/** Starts a program in `root`; with a server's `url` it can be asked for its memory. */
function start(command: string[], url?: string) {
  const probe = url ? ['--import', PROBE] : [] // behind tsx, which reads it
  const [program, ...args] = command.toSpliced(3, 0, ...probe)
  const child = spawn(program, args, {
    cwd: root,
    shell: process.platform === 'win32' && program === 'npx', // npx.cmd, there
    env: {
      ...process.env,
      ...(url && { ANTHROPIC_API_KEY: 'key-of-the-bench', ANTHROPIC_BASE_URL: url }),
      REQUEST_LIMIT: `${TURNS + 1}`,
      WORKDIR: root,
    },
    stdio: ['ignore', 'ignore', 'inherit', ...(url ? ['ipc' as const] : [])],
  })
  children.add(child)
  const ended = once(child, 'close').then(([code]) => {
    children.delete(child)
    if (code !== 0) throw new Error(`${args.join(' ')} ended with exit code ${code}.`)
  })
  return { child, ended }
}

/** Runs a loop to its end; before each batch it waits for the other one in `meet`. */
async function measure(command: string[], meet: () => Promise<void>) {
  const run: Run = { times: [], memory: {} }
  let sent = 0
  const server = await startServer(async (_, turn) => {
    const [{ at }] = server.requests.splice(0)
    if (turn > 0) run.times.push(at - sent)
    if (turn === END || turn === TURNS) {
      child.send('memory?')
      run.memory[turn] = (await once(child, 'message'))[0]
    }
    const met = turn % BATCH === 0 && meet()
    if (turn < TURNS) await met
    const read = calls({ name: 'read_file', input: { path: 'note.txt' } })
    const answer = turn < TURNS ? read : text('Done.')
    return (...request) => {
      sent = performance.now()
      answer(...request)
    }
  })
  const { child, ended } = start(command, server.url)
  await ended
  await server.close()
  if (run.times.length < TURNS) throw new Error(JSON.stringify(server.refused))
  return run
}

/** A place where each of two callers waits until the other one comes. */
function turnstile() {
  let open = () => {}
  return () => {
    open()
    return new Promise<void>((go) => {
      open = go
    })
  }
}

async function seconds(command: string[]): Promise<number> {
  const began = performance.now()
  await start(command).ended
  return (performance.now() - began) / 1000
}

/** What step 04's parent sends beside its messages. */
async function request(): Promise<string> {
  const server = await startServer(() => text('Done.'))
  await start(LIVE, server.url).ended
  await server.close()
  const [{ body }] = server.requests
  return JSON.stringify({ system: body.system, tools: body.tools })
}

function median(values: number[]): number {
  const sorted = values.toSorted((a, b) => a - b)
  const middle = (values.length - 1) / 2
  return (sorted[Math.floor(middle)] + sorted[Math.ceil(middle)]) / 2
}

/** Prints the medians of both sides, and how many times the second the first one is. */
function row(title: string, unit: string, step: number[], beside: number[]) {
  const [a, b] = [median(step), median(beside)]
  const numbers = [a, b].map((value) => `${value.toFixed(2)} ${unit}`.padStart(11))
  const line = [title.padEnd(28), ...numbers, (a / b).toFixed(2).padStart(7)]
  process.stdout.write(`${line.join('')}\n`)
}

const LIVE = byTsx(STEP, '--live', 'Read the file.')
const steps: Run[] = []
const loops: Run[] = []
const sent = await request()
for (let i = 0; i < RUNS; i++) {
  const meet = turnstile()
  const both = [measure(LIVE, meet), measure(byTsx(LOOP, sent), meet)]
  const [a, b] = await Promise.all(both)
  steps.push(a)
  loops.push(b)
}
const [offline, imports, first, plain]: number[][] = [[], [], [], []]
for (let i = 0; i < STARTS; i++) {
  offline.push(await seconds(byTsx(STEP)))
  imports.push(await seconds(byTsx('imports.ts')))
  first.push(await seconds(['npx', 'tsx', STEP]))
  if (typescript) plain.push(await seconds([process.execPath, STEP]))
}
process.stdout.write(`${'a step'.padStart(39)}${'beside it'.padStart(11)}  ratio\n`)
const both = (title: string, unit: string, of: (run: Run) => number[]) =>
  row(title, unit, steps.flatMap(of), loops.flatMap(of))
for (const [from, to] of [
  [0, END],
  [TURNS - END, TURNS],
  [0, TURNS],
]) {
  both(`a turn, ${from + 1} to ${to}`, 'ms', ({ times }) => times.slice(from, to))
}
for (const turn of [END, TURNS]) {
  both(`heap after ${turn} turns`, 'MB', ({ memory }) => [memory[turn].heap / 2 ** 20])
  both(`peak after ${turn} turns`, 'MB', ({ memory }) => [memory[turn].peak / 2 ** 20])
}
row('offline run', 's', offline, imports)
if (typescript) row("the README's first command", 's', first, plain)
else process.stdout.write(`the README's first command  ${median(first).toFixed(2)} s\n`)
process.stdout.write(`
Step 04 beside test/bench-loop.ts, the shortest loop with the same tool and request, on
the same server; its offline run beside a script that only imports the same packages; npx
tsx beside node alone (${typescript ? process.version : `not measured: ${process.version} cannot`}).
Medians of ${RUNS} runs, of ${STARTS} for the last two rows; the loops take turns of ${BATCH} requests. A turn lasts from the server's
reply to the next request. Heap is what is in use after a collection, peak the most that
was ever taken.
`)
