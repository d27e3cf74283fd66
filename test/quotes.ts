/** Where figures and quotes come from: recordings, source files, commands that are run. */
import { execFile } from 'node:child_process'
import { mkdirSync, readdirSync, writeFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import {
  type LaneFile,
  readFolder,
  requestSizes,
} from '../steps/support/base/lane-file.ts'
import { EXERCISES } from './exercises.ts'
import { type Block, isChinese, type Page, parsePage, read } from './markdown.ts'
import { compileSteps, editStep, makeRoot } from './server.ts'

const ROOT = dirname(import.meta.dirname)

/** Read in a minute: words of English, characters of Chinese, lines of a step. */
const WORDS_A_MINUTE = 200
const CHARACTERS_A_MINUTE = 400
const LINES_A_MINUTE = 20
const ROUNDED_TO = 5

/** The lanes that `04-subagent` or `04-subagent/parent` stands for. */
function lanesOf(name: string): LaneFile[] {
  const [folder, lane] = name.split('/')
  const lanes = readFolder(join(ROOT, 'logs', 'recorded', folder))
  const found = lanes.filter((file) => lane === undefined || file.name === lane)
  if (found.length === 0) throw new Error(`${folder} has no lane ${lane}`)
  return found
}

const sizesOf = (name: string) => lanesOf(name).flatMap(requestSizes)
const sum = (values: number[]) => values.reduce((a, b) => a + b, 0)
const linesOf = (text: string) => text.trimEnd().split('\n')

function callsOf(name: string): string[] {
  const messages = lanesOf(name).flatMap(({ messages }) => messages)
  return messages.flatMap(({ content }) =>
    typeof content === 'string'
      ? []
      : content.flatMap((block) => (block.type === 'tool_use' ? block.name : [])),
  )
}

/** How many messages only one of two lanes has: '-' those of `a`, '+' those of `b`. */
function differing(sign: string, a: string, b: string): number {
  const [before, after] = [a, b].map((name) =>
    lanesOf(name)[0].messages.map((message) => JSON.stringify(message)),
  )
  return diff(before, after).filter((line) => line.startsWith(sign)).length
}

/**
 * The value of `<!-- = … -->`; what can stand there is listed in docs.test.ts.
 *
 * @throws {Error} naming what is unknown or missing
 */
export function figure(spec: string, page: Page): number {
  const [kind, first = '', ...more] = spec.split(' ')
  const rest = more.join(' ')
  const kinds: Record<string, () => number> = {
    messages: () => sum(lanesOf(first).map(({ messages }) => messages.length)),
    requests: () => sizesOf(first).length,
    largest: () => Math.max(...sizesOf(first)),
    bytes: () => sum(sizesOf(first)),
    percent: () => Math.round((100 * sum(sizesOf(first))) / sum(sizesOf(rest))),
    calls: () => callsOf(first).filter((name) => !rest || name === rest).length,
    tools: () => lanesOf(first)[0].header.tools.length,
    gone: () => differing('-', first, rest),
    new: () => differing('+', first, rest),
    lines: () => linesOf(rest ? declaration(first, rest) : read(first)).length,
    after: () => numberAfter(first, rest),
    seconds: () => numberAfter(first, rest) / 1000,
    minutes: () => minutes(first, isChinese(page)),
  }
  if (!kinds[kind]) throw new Error(`there is no figure of the kind ${kind}`)
  return kinds[kind]()
}

/** The number behind a text that stands exactly once in a file. */
function numberAfter(path: string, text: string): number {
  const [, behind = '', ...more] = read(path).split(text)
  const digits = /^\s*([\d_.]*\d)/.exec(behind)?.[1].replaceAll('_', '')
  if (!digits || more.length > 0) {
    throw new Error(`${path} has no single place with a number behind ${text}`)
  }
  return Number(digits)
}

/** How long a chapter and its step take to read, rounded up. */
function minutes(step: string, chinese: boolean): number {
  const path = `docs/${chinese ? 'zh/' : ''}${step}.md`
  const { prose } = parsePage(path, read(path))
  const words = prose.match(/[A-Za-z'’-]+/g) ?? []
  const characters = prose.match(/\p{Script=Han}/gu) ?? []
  const exact =
    words.length / WORDS_A_MINUTE +
    characters.length / CHARACTERS_A_MINUTE +
    linesOf(read(`steps/${step}.ts`)).length / LINES_A_MINUTE
  return ROUNDED_TO * Math.ceil(exact / ROUNDED_TO)
}

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

/** The line of a declaration or of a class's method, from 1; 0 if there is none. */
export function lineOf(source: string, name: string): number {
  const method = new RegExp(
    `^ {2}(?:async |static )*${name.replace(/\W/g, '\\$&')}\\(`,
    'm',
  )
  const at = (declares(source, name) ?? method.exec(source))?.index
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

function diffBlock(a: string, b: string): string {
  return `${diff(linesOf(a), linesOf(b)).join('\n')}\n`
}

function stepFile(number: string): string {
  const name = readdirSync(join(ROOT, 'steps')).find((name) =>
    name.startsWith(`${number}-`),
  )
  if (!name) throw new Error(`there is no step ${number}`)
  return `steps/${name}`
}

/** What a block has to hold; undefined where it only has to be a part of something. */
export async function expectedBody(block: Block): Promise<string | undefined> {
  const { kind, args, files } = block
  const [first, second, name] = args.split(' ')
  if (kind === 'output') {
    const key = JSON.stringify([args, files])
    return (await once(key, () => run(args, makeRootWith(files)))).output
  }
  if (kind === 'after') {
    const { root, command, output } = await doExercise(first)
    const shown = args.slice(first.length + 1)
    return shown === command ? output : (await once(args, () => run(shown, root))).output
  }
  if (kind === 'exercise') return diffBlock(exercise(first).from, exercise(first).to)
  if (kind === 'file' && second) return declaration(first, second)
  if (kind !== 'diff') return undefined
  return diffBlock(
    declaration(stepFile(first), name),
    declaration(stepFile(second), name),
  )
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

function makeRootWith(files: Block['files']): string {
  const root = makeRoot()
  for (const { path, body } of files) {
    mkdirSync(dirname(join(root, path)), { recursive: true })
    writeFileSync(join(root, path), body)
  }
  return root
}

type Result = { code: number; output: string }

/** Runs a command as a reader's shell would; `output` is what their terminal shows. */
export function run(command: string, cwd: string): Promise<Result> {
  if (/npx tsx|npm run -s view/.test(command)) compileSteps(cwd)
  const node = `"${process.execPath}"`
  const direct = command
    .replace(/npx tsx (\S+)\.ts/g, `${node} $1.mjs`)
    .replaceAll('npm run -s view', `${node} steps/support/view.mjs`)
  const env = { PATH: process.env.PATH, HOME: cwd, LC_ALL: 'C' }
  const options = { cwd, env, timeout: 30_000, maxBuffer: 1e7 }
  return new Promise((done, failed) => {
    const args = ['-c', `exec 2>&1\n${direct}`]
    const child = execFile('sh', args, options, (error, stdout) => {
      const code = error ? Number(error.code) : 0
      const output = stdout.replace(/[^\n]$/, '$&\n')
      if (Number.isInteger(code)) done({ code, output })
      else failed(error)
    })
    child.stdin?.end()
  })
}

const started = new Map<string, Promise<unknown>>()

function once<T>(key: string, start: () => Promise<T>): Promise<T> {
  if (!started.has(key)) started.set(key, start())
  return started.get(key) as Promise<T>
}

function exercise(id: string) {
  if (!EXERCISES[id]) throw new Error(`test/exercises.ts has no ${id}`)
  return EXERCISES[id]
}

/** Does an exercise, once: a fresh copy, the edit, the run. */
export function doExercise(
  id: string,
): Promise<Result & { root: string; command: string }> {
  return once(`exercise ${id}`, async () => {
    const { step, from, to } = exercise(id)
    const root = makeRoot()
    editStep(root, step, from, to)
    const command = `npx tsx steps/${step}.ts`
    return { ...(await run(command, root)), root, command }
  })
}
