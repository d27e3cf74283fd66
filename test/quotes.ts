/** Where quotes come from: source files, recordings, commands that are run, exercises. */
import { execFile } from 'node:child_process'
import { mkdirSync, readdirSync, readFileSync, writeFileSync } from 'node:fs'
import { basename, dirname, join } from 'node:path'
import { callLine } from '../steps/support/base/lane-file.ts'
import { compile, makeRoot } from './kit.ts'
import { type Block, idOf, ROOT, read } from './markdown.ts'

const linesOf = (text: string) => text.trimEnd().split('\n')

const START =
  /\n\n(?=(?:export|const|let|type|class|function|async|await|for|if|\/\*\*|\/\/)\s)/

function declares(source: string, name: string): RegExpExecArray | null {
  const plain = name.replace(/[.$]/g, '\\$&')
  const keyword = '(?:export )?(?:async )?(?:const|let|type|class|function)\\*?'
  return new RegExp(`^(?:${keyword}|await) ${plain}\\b`, 'm').exec(source)
}

/**
 * A top-level statement of a file, with the comment before it, as it stands there.
 *
 * @throws {Error} if there is not exactly one of that name
 */
export function declaration(path: string, name: string): string {
  const found = read(path)
    .split(START)
    .filter((chunk) => declares(chunk, name))
  if (found.length !== 1) throw new Error(`${path} declares ${found.length} ${name}`)
  return `${found[0].trim()}\n`
}

/** The line of a declaration or of a class's member, from 1; 0 if there is none. */
export function lineOf(source: string, name: string): number {
  const plain = name.replace(/\W/g, '\\$&')
  const member = new RegExp(`^ {2}(?:async |static |readonly )*${plain}(?:[(:]| =)`, 'm')
  const at = (declares(source, name) ?? member.exec(source))?.index
  return at === undefined ? 0 : source.slice(0, at).split('\n').length
}

/** Lines with ' ', '-' or '+' before them, empty ones apart: the way from `a` to `b`. */
export function diff(a: string[], b: string[]): string[] {
  // common[i][j] is how many lines a from i on and b from j on can share.
  const common = Array.from({ length: a.length + 1 }, () => Array(b.length + 1).fill(0))
  for (let i = a.length - 1; i >= 0; i--) {
    for (let j = b.length - 1; j >= 0; j--) {
      common[i][j] =
        a[i] === b[j]
          ? 1 + common[i + 1][j + 1]
          : Math.max(common[i + 1][j], common[i][j + 1])
    }
  }
  const lines: string[] = []
  let [i, j] = [0, 0]
  while (i < a.length || j < b.length) {
    const inBoth = i < a.length && j < b.length
    if (inBoth && a[i] === b[j]) {
      lines.push(a[i] && ` ${a[i]}`)
      i++
      j++
    } else if (inBoth ? common[i + 1][j] >= common[i][j + 1] : i < a.length) {
      lines.push(`-${a[i++]}`)
    } else lines.push(`+${b[j++]}`)
  }
  return lines
}

/** `steps/04-subagent.ts` for `04` and for `04-cap`. */
function stepFile(number: string): string {
  const start = `${number.slice(0, 2)}-`
  const name = readdirSync(join(ROOT, 'steps')).find((name) => name.startsWith(start))
  if (!name) throw new Error(`there is no step ${number}`)
  return `steps/${name}`
}

/** What a block has to hold; undefined where that is not made by a program. */
export async function expectedBody(block: Block): Promise<string | undefined> {
  const { kind, args } = block
  const [first, second, name] = args.split(' ')
  if (kind === 'output' || kind === 'brief') {
    // What begins with the same command is run once: the rest of the line gets its text.
    const [command, ...filters] = args.split(' | ')
    const whole = await once(command, () => run(command, makeRoot()))
    const filter = filters.join(' | ')
    const { output } = filter ? await run(filter, ROOT, whole.output) : whole
    return kind === 'brief' ? output.replace(/.+/g, inBrief) : output
  }
  if (kind === 'after') {
    const { root, command, output } = await doExercise(block)
    const shown = args.slice(first.length + 1)
    if (shown === command) return output
    return (await once(root + shown, () => run(shown, root))).output
  }
  if (kind === 'file' && second) return declaration(first, second)
  if (kind !== 'diff') return undefined
  const [a, b] = [first, second].map((step) => declaration(stepFile(step), name))
  return `${diff(linesOf(a), linesOf(b)).join('\n')}\n`
}

/** A log's line, with diff's mark before it, as who says what; any other as it stands. */
export function inBrief(line: string): string {
  const [, mark, json] = /^([<>] )?(\{.*)$/.exec(line) ?? []
  if (!json) return line
  const { role, content, step, lane, system, tools } = JSON.parse(json)
  const blocks = typeof content === 'string' ? [{ text: content }] : content
  const said = blocks?.map((block: Record<string, string>) => {
    if (block.name) return `tool_use ${block.id} ${callLine(block as never)}`
    if (block.tool_use_id) return `tool_result ${block.tool_use_id} ${block.content}`
    return block.text
  })
  const runsWith = () => `${lane} of ${step}: ${tools.length} tools, system: ${system}`
  const what = role ? `${role.padEnd(9)} ${said.join(' | ')}` : runsWith()
  const whole = `${mark ?? ''}${what}`.replace(/\s*\n\s*/g, ' ')
  return whole.length > 88 ? `${whole.slice(0, 87)}…` : whole.trimEnd()
}

/** What is wrong with a block that is a part of the file which it names. */
export function partProblem({ kind, args, body }: Block): string | undefined {
  const source = read(args)
  if (kind === 'log') return logProblem(linesOf(source), linesOf(body))
  return `\n${source}`.includes(`\n${body}`) ? undefined : `is not in ${args}`
}

/** Each line quotes one of the recording, in its order; `…` stands for what is left out. */
export function logProblem(recorded: string[], quoted: string[]): string | undefined {
  let next = 0
  for (const quote of quoted) {
    const parts = quote.split(/ ?… ?/).map((part) => part.replace(/[^\w\s]/g, '\\$&'))
    const pattern = new RegExp(`^${parts.join('.*')}$`)
    const at = recorded.findIndex((line, i) => i >= next && pattern.test(line))
    if (at < 0) return `is no line of it, or not in this order: ${quote}`
    next = at + 1
  }
  return undefined
}

type Result = { code: number; output: string }

/**
 * Runs a command as a reader's shell would; `output` is what their terminal shows. A step
 * of `cwd` runs compiled: what tsx makes of it, made once.
 */
export function run(command: string, cwd: string, input = ''): Promise<Result> {
  const direct = command
    .replaceAll('npm run -s view', 'npx tsx steps/support/cli/view.ts')
    .replace(/npx tsx (\S+)/g, (_, path) => `"${process.execPath}" ${compile(cwd, path)}`)
  const env = { PATH: process.env.PATH, HOME: cwd, LC_ALL: 'C' }
  const options = { cwd, env, timeout: 60_000, maxBuffer: 1e7 }
  return new Promise((done, failed) => {
    const args = ['-c', `exec 2>&1\n${direct}`]
    const child = execFile('sh', args, options, (error, stdout) => {
      const code = error ? Number(error.code) : 0
      const output = stdout.replace(/[^\n]$/, '$&\n')
      if (Number.isInteger(code)) done({ code, output })
      else failed(error)
    })
    child.stdin?.on('error', () => {}).end(input) // `head` does not read all of it
  })
}

const started = new Map<string, Promise<unknown>>()

function once<T>(key: string, start: () => Promise<T>): Promise<T> {
  if (!started.has(key)) started.set(key, start())
  return started.get(key) as Promise<T>
}

/** A source with the edit of a diff block made: its lines are there exactly once. */
export function edited(source: string, edit: string): string {
  const lines = linesOf(edit)
  const side = (sign: string) =>
    lines
      .filter((line) => line === '' || line[0] === ' ' || line[0] === sign)
      .map((line) => `${line.slice(1)}\n`)
      .join('')
  const parts = `\n${source}`.split(`\n${side('-')}`)
  if (parts.length !== 2) {
    throw new Error(`the edit fits ${parts.length - 1} times: ${lines[0]}`)
  }
  return parts.join(`\n${side('+')}`).slice(1)
}

/** Does an exercise, once: a fresh copy, the edits, a run of its step. */
export function doExercise(
  block: Block,
): Promise<Result & { root: string; step: string; command: string }> {
  const { edits } = block
  const key = JSON.stringify(edits.map(({ args, body }) => [args, body]))
  return once(key, async () => {
    const step = stepFile(block.args)
    const root = makeRoot()
    for (const { kind, args, body } of edits) {
      const path = join(
        root,
        kind === 'write' ? args.slice(idOf(block).length + 1) : step,
      )
      mkdirSync(dirname(path), { recursive: true })
      const text = kind === 'write' ? body : edited(readFileSync(path, 'utf8'), body)
      writeFileSync(path, text)
    }
    const command = `npx tsx ${step}`
    const name = basename(step, '.ts')
    return { ...(await run(command, root)), root, step: name, command }
  })
}
