/** `npm run bench`: what step 04 costs beside the shortest loop. Ratios, never a verdict. */
import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import process from 'node:process'
import { pathToFileURL } from 'node:url'
import { calls, makeRoot, startServer, text } from './server.ts'

const TURNS = 1000
const BATCH = 10 // turns of one loop before the other has its turns
const PAIRS = 2
const STARTS = 7

/** Step 04 first, then what it is compared with. */
type Pair<T> = [T, T]
/** Milliseconds of each turn; bytes at these turns: heap in use, most memory so far. */
type Run = { times: number[]; memory: Record<number, { heap: number; peak: number }> }

const STEP = 'steps/04-subagent.ts'
const LOOP = join(import.meta.dirname, 'bench-loop.ts')
const PROBE = pathToFileURL(join(import.meta.dirname, 'bench-probe.ts')).href
const root = makeRoot()
writeFileSync(join(root, 'note.txt'), 'A small file, read once in every turn.\n')
writeFileSync(
  join(root, 'imports.ts'),
  "import '@anthropic-ai/sdk'\nimport 'dotenv'\nimport 'pino'\n",
)

const children = new Set<ChildProcess>()
process.on('exit', () => {
  for (const child of children) child.kill('SIGKILL')
})

/** Starts a program in `root`; with `url` it can be asked for its memory. */
function start(path: string, args: string[], url?: string) {
  const probe = url === undefined ? [] : ['--import', PROBE]
  const child = spawn(process.execPath, ['--import', 'tsx', ...probe, path, ...args], {
    cwd: root,
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
    if (code !== 0) throw new Error(`${path} ended with exit code ${code}.`)
  })
  return { child, ended }
}

/** Runs a loop to its end. `meet` is waited for after each batch. */
async function measure(path: string, args: string[], meet: () => Promise<void>) {
  const run: Run = { times: [], memory: {} }
  let sent = 0
  const server = await startServer(async (_, turn) => {
    const [{ at }] = server.requests.splice(0)
    if (turn > 0) run.times.push(at - sent)
    if (turn % 100 === 0) {
      child.send('memory?')
      run.memory[turn] = (await once(child, 'message'))[0]
    }
    const met = turn % BATCH === 0 && meet()
    if (turn < TURNS) await met
    const read = calls({ name: 'read_file', input: { path: 'note.txt' } })
    const answer = turn < TURNS ? read : text('Done.')
    return (...request) => {
      answer(...request)
      sent = performance.now()
    }
  })
  const { child, ended } = start(path, args, server.url)
  await ended
  await server.close()
  if (run.times.length !== TURNS) throw new Error(JSON.stringify(server.refused))
  return run
}

/** Each of two callers waits until the other one comes. */
function turnstile() {
  let open = () => {}
  return () => {
    open()
    return new Promise<void>((go) => {
      open = go
    })
  }
}
const runs: Pair<Run>[] = []
for (let i = 0; i < PAIRS; i++) {
  const meet = turnstile()
  runs.push(await Promise.all([measure(STEP, ['--live', 'go'], meet), measure(LOOP, [], meet)]))
  console.log(runs[i].map(r => [r.times.slice(0,100).reduce((a,b)=>a+b), r.times.slice(900).reduce((a,b)=>a+b), r.times.reduce((a,b)=>a+b), JSON.stringify(r.memory)]))
}
