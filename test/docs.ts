/**
 * What the checks of README.md and docs/ are made of: a page taken apart, the rules that
 * each page keeps, and what a quote has to be. The conventions stand in docs.test.ts.
 */
import { execFile } from 'node:child_process'
import { existsSync, readdirSync, readFileSync } from 'node:fs'
import { basename, dirname, join, posix } from 'node:path'
import { type LaneFile, readFolder, requestSizes } from '../steps/support/lane-file.ts'
import { EXERCISES } from './exercises.ts'
import { editStep, makeRoot } from './server.ts'

const ROOT = dirname(import.meta.dirname)

/** A fenced block with the comment before it; `line` counts from 1. */
export type Block = {
  kind: string
  args: string
  lang: string
  body: string
  line: number
}

/** `prose` is the text without blocks, figures, comments, code and addresses. */
export type Page = { path: string; text: string; blocks: Block[]; prose: string }

const BLOCK = /^(?:<!-- (\w+)(?:: (.*))? -->\n)?```(\w*)\n([\s\S]*?)^```$/gm
const COMMENT = /<!--[\s\S]*?-->/g
const FIGURE = /(\d[\d,]*(?:\.\d+)?|[A-Za-z]+)<!-- = (.+?) -->/g
const CODE = /(`+)([^\n]+?)\1(?!`)/g
const LINK = /\[([^\]]*)\]\(([^)\s]+)\)/g
const isChinese = ({ path }: Page) => path.startsWith('docs/zh/')
const lineAt = (text: string, index: number) => text.slice(0, index).split('\n').length
/** Takes a piece out, but not its lines: they are counted in messages. */
const blank = (text: string) => text.replace(/[^\n]+/g, '')

/** Reads a file by its path in the repository, written with slashes. */
export const read = (path: string) => readFileSync(join(ROOT, path), 'utf8')

export function parsePage(path: string, text: string): Page {
  const blocks = [...text.matchAll(BLOCK)].map((match) => {
    const [, kind = '', args = '', lang, body] = match
    return { kind, args, lang, body, line: lineAt(text, match.index) }
  })
  const prose = text
    .replace(BLOCK, blank)
    .replace(FIGURE, '')
    .replace(COMMENT, blank)
    .replace(CODE, '`')
    .replace(/\]\([^)]*\)/g, ']')
    .replace(/https?:\/\/[^\s)>]+/g, '')
  return { path, text, blocks, prose }
}

/** README.md and all of docs/, in a stable order. */
export function allPages(): Page[] {
  const inFolder = (folder: string) =>
    readdirSync(join(ROOT, folder))
      .filter((name) => name.endsWith('.md'))
      .sort()
      .map((name) => `${folder}/${name}`)
  const paths = ['README.md', ...inFolder('docs'), ...inFolder('docs/zh')]
  return paths.map((path) => parsePage(path, read(path)))
}

/** A page's headings, in order. */
export function headingsOf({ text }: Page): { level: number; title: string }[] {
  const found = text.replace(BLOCK, '').matchAll(/^(#+) (.+)$/gm)
  return [...found].map(([, marks, title]) => ({ level: marks.length, title }))
}

// Rules. Each returns what is wrong on a page, a sentence per fault.

type Rule = (page: Page) => string[]

const QUOTES = ['file', 'diff', 'log', 'output', 'exercise', 'after']

/** A block without a quote's comment is a command to type or a drawing, and no claim. */
const blocksAreQuotes: Rule = ({ blocks, text }) => {
  const wrong = blocks.flatMap(({ kind, lang, line, body }) => {
    if (QUOTES.includes(kind)) return body ? [] : `line ${line}: empty, run npm run docs`
    if (kind === 'drawing') {
      const loose = looseFigures(body.replace(/\b(sub-|tool_)\d/g, ''), false)
      return loose.map((figure) => `line ${line}: a figure in a drawing: ${figure}`)
    }
    return kind === '' && (lang === 'sh' || lang === 'mermaid')
      ? []
      : `line ${line}: a block that nothing checks (${kind || 'no comment before it'})`
  })
  const rest = text.replace(BLOCK, blank).replace(FIGURE, '')
  const stray = [...rest.matchAll(COMMENT)].map(
    ({ 0: comment, index }) => `line ${lineAt(rest, index)}: stray ${comment}`,
  )
  return [...wrong, ...stray]
}

/** What digits may stand for, other than a figure: a step, a section, a place in a list. */
const NO_FIGURE =
  /^ *\d+\. |\bs?0[1-9]\b|^# 10 ·|(?:\bstep |\bchapter |第 )10\b|§\d(?:\.\d)?|\bPart [12]\b/gm
const WORDS = 'zero one two three four five six seven eight nine ten eleven twelve'
const NUMBERS = [
  ...WORDS.split(' '),
  ...'thirteen fourteen fifteen sixteen seventeen eighteen nineteen twenty'.split(' '),
]
const ENGLISH = new RegExp(
  `\\b(?:${NUMBERS.slice(3).join('|')}|third|fourth|fifth|sixth|dozen|thirty|forty|fifty` +
    '|hundreds?|thousands?|half|twice)\\b',
  'gi',
)
const CHINESE = /[三四五六七八九百]|(?<!十分|[几数])十(?!分)|[一两]半|[一两]倍/g

function looseFigures(prose: string, chinese: boolean): string[] {
  const text = prose.replace(NO_FIGURE, '')
  const patterns = [/\d[\d,.]*/g, ENGLISH, ...(chinese ? [CHINESE] : [])]
  return patterns.flatMap((pattern) => text.match(pattern) ?? [])
}

const noLooseFigures: Rule = (page) =>
  page.prose.split('\n').flatMap((line, i) => {
    const loose = looseFigures(line, isChinese(page))
    return loose.map((figure) => `line ${i + 1}: where is ${figure} from? ${line.trim()}`)
  })

const figuresAreRight: Rule = (page) =>
  [...page.text.matchAll(FIGURE)].flatMap(([, written, spec]) => {
    const word = NUMBERS.indexOf(written.toLowerCase())
    const given = word >= 0 ? word : Number(written.replaceAll(',', ''))
    try {
      const value = figure(spec, page)
      return given === value ? [] : `${written} (${spec}) is ${value}`
    } catch (error) {
      return `${written} (${spec}): ${(error as Error).message}`
    }
  })

/** Inline code that holds a digit or is a path says something about a file, too. */
const codeIsReal: Rule = ({ text, blocks }) => {
  const quoted = blocks.map(({ body }) => body).join('\n')
  const spans = [...text.replace(BLOCK, '').replace(COMMENT, '').matchAll(CODE)]
  return spans.flatMap(([, , code]) => {
    if (/[<*…]|^NN/.test(code)) return [] // a pattern, no name
    if (/^(?:\.\/)?(?:steps|docs|test|logs\/recorded)\/\S*$/.test(code)) {
      return existsSync(join(ROOT, code)) ? [] : `there is no ${code}`
    }
    if (/^(?:npx|npm|diff|git|cp) /.test(code)) return commandProblems(code)
    if (!/\d/.test(code) || quoted.includes(code) || corpus().includes(code)) return []
    return existsSync(join(ROOT, code)) ? [] : `\`${code}\` stands nowhere`
  })
}

let sources = ''
/** All steps and recordings, these also with their strings as they are. */
function corpus(): string {
  const textsIn = (folder: string): string[] =>
    readdirSync(join(ROOT, folder), { withFileTypes: true, recursive: true })
      .filter((entry) => entry.isFile())
      .map((entry) => readFileSync(join(entry.parentPath ?? entry.path, entry.name), 'utf8'))
  if (sources === '') {
    const logs = textsIn('logs/recorded').join('\n')
    const plain = logs.replace(/\\n/g, '\n').replace(/\\"/g, '"')
    sources = [...textsIn('steps'), read('package.json'), logs, plain].join('\n')
  }
  return sources
}

const commandsExist: Rule = ({ blocks }) =>
  blocks
    .filter(({ lang }) => lang === 'sh')
    .flatMap(({ body }) => body.split('\n'))
    .flatMap((line) => commandProblems(line.replace(/(^|\s)#.*/, '')))

function commandProblems(command: string): string[] {
  const { scripts } = JSON.parse(read('package.json'))
  const paths = command.match(/\b(?:steps|docs|test|logs\/recorded)\/[\w./-]+/g) ?? []
  const names = [...command.matchAll(/npm run (?:-s )?(\w+)/g)].map(([, name]) => name)
  return [
    ...paths
      .filter((path) => !existsSync(join(ROOT, path)))
      .map((path) => `${command}: there is no ${path}`),
    ...names
      .filter((name) => !scripts[name])
      .map((name) => `${command}: package.json has no script ${name}`),
  ]
}

/** As GitHub makes an anchor of a heading. */
function anchorOf(title: string): string {
  const plain = title.replace(/\[([^\]]*)\]\([^)]*\)/g, '$1').toLowerCase()
  return plain.replace(/[^\p{L}\p{M}\p{N}_ -]/gu, '').replaceAll(' ', '-')
}

const linksLeadSomewhere: Rule = (page) =>
  [...page.text.replace(BLOCK, '').matchAll(LINK)].flatMap(([link, label, target]) => {
    if (target.startsWith('https://')) return []
    const [file, anchor] = target.split('#')
    const path = file ? posix.join(posix.dirname(page.path), file) : page.path
    if (!existsSync(join(ROOT, path))) return `${link}: there is no ${path}`
    if (path.endsWith('.ts')) return sourceLinkProblem(link, label, path, anchor)
    if (anchor === undefined) return []
    const there = path === page.path ? page : parsePage(path, read(path))
    const anchors = headingsOf(there).map(({ title }) => anchorOf(title))
    return anchors.includes(anchor) ? [] : `${link}: ${path} has no such heading`
  })

/** A link to a file of code, named by code, is named after what is declared there. */
function sourceLinkProblem(link: string, label: string, path: string, anchor?: string) {
  const name = /^`(.+)`$/.exec(label)?.[1]
  if (!name || path.endsWith(name)) return anchor ? `${link}: which declaration?` : []
  const line = lineOf(read(path), name)
  if (line === 0) return `${link}: ${path} declares no ${name}`
  return anchor === `L${line}` ? [] : `${link}: ${name} is on line ${line}`
}

export const RULES: Record<string, Rule> = {
  'every block is checked': blocksAreQuotes,
  'no figure is loose': noLooseFigures,
  'every figure is right': figuresAreRight,
  'inline code is real': codeIsReal,
  'commands exist': commandsExist,
  'links lead somewhere': linksLeadSomewhere,
}

/** What a page and its translation must have in common. */
export function pairProblems(english: Page, chinese: Page): string[] {
  const compare = (what: string, aspect: (page: Page) => string[]) => {
    const [a, b] = [aspect(english), aspect(chinese)]
    const i = Array.from(a.length >= b.length ? a : b).findIndex((_, i) => a[i] !== b[i])
    return i < 0 ? [] : `${what} ${i + 1}: ${a[i] ?? 'none'} | ${b[i] ?? 'none'}`
  }
  const withoutComments = (body: string) => body.replace(/ *#.*/g, '')
  return [
    compare('heading', (page) => headingsOf(page).map(({ level }) => '#'.repeat(level))),
    compare('block', ({ blocks }) =>
      blocks.map(({ kind, args, lang, body }) => {
        const said = kind === 'drawing' ? '' : lang === 'sh' ? withoutComments(body) : body
        return `${kind} ${args} ${lang}\n${said}`
      }),
    ),
    compare('figure', ({ text }) => [...text.matchAll(FIGURE)].map(([, , f]) => f).sort()),
  ].flat()
}

// Figures.

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
/** Words of English, characters of Chinese and lines of code that are read in a minute. */
const SPEED = { words: 200, characters: 400, lines: 20 }

/** The value behind `<!-- = … -->`; what can stand there is listed in docs.test.ts. */
export function figure(spec: string, page: Page): number {
  const [kind, first = '', ...more] = spec.split(' ')
  const rest = more.join(' ')
  const messageLines = (name: string) =>
    lanesOf(name)[0].messages.map((message) => JSON.stringify(message))
  switch (kind) {
    case 'messages':
      return sum(lanesOf(first).map(({ messages }) => messages.length))
    case 'requests':
      return sizesOf(first).length
    case 'largest':
      return Math.max(...sizesOf(first))
    case 'bytes':
      return sum(sizesOf(first))
    case 'percent':
      return Math.round((100 * sum(sizesOf(first))) / sum(sizesOf(rest)))
    case 'calls':
      return lanesOf(first)
        .flatMap(({ messages }) => messages.flatMap(({ content }) => content))
        .filter((block) => typeof block !== 'string' && block.type === 'tool_use')
        .filter((block) => !rest || (block as { name: string }).name === rest).length
    case 'tools':
      return lanesOf(first)[0].header.tools.length
    case 'gone':
      return diff(messageLines(first), messageLines(rest)).filter(([m]) => m === '-').length
    case 'new':
      return diff(messageLines(first), messageLines(rest)).filter(([m]) => m === '+').length
    case 'lines':
      return (rest ? declaration(first, rest) : read(first)).trimEnd().split('\n').length
    case 'after':
      return numberAfter(first, rest)
    case 'seconds':
      return numberAfter(first, rest) / 1000
    case 'minutes':
      return minutes(first, isChinese(page))
    default:
      throw new Error(`there is no such figure: ${kind}`)
  }
}

/** The number behind a text that stands exactly once in a file. */
function numberAfter(path: string, text: string): number {
  const parts = read(path).split(text)
  const digits = /^\s*([\d_.]*\d)/.exec(parts[1] ?? '')?.[1].replaceAll('_', '')
  if (parts.length !== 2 || !digits) {
    throw new Error(`${path} has ${parts.length - 1} times ${text} before a number`)
  }
  return Number(digits)
}

/** How long a chapter and its step take to read, in steps of five minutes. */
function minutes(step: string, chinese: boolean): number {
  const path = `docs/${chinese ? 'zh/' : ''}${step}.md`
  const { prose } = parsePage(path, read(path))
  const code = read(`steps/${step}.ts`).trimEnd().split('\n').length / SPEED.lines
  const words = (prose.match(/[A-Za-z'’-]+/g)?.length ?? 0) / SPEED.words
  const characters = (prose.match(/\p{Script=Han}/gu)?.length ?? 0) / SPEED.characters
  return 5 * Math.ceil((code + words + characters) / 5)
}

// Quotes.

const START =
  /\n\n(?=(?:export|const|let|type|class|function|async|await|for|if|\/\*\*|\/\/)\s)/

const declares = (name: string) =>
  new RegExp(
    `^(?:export )?(?:async )?(?:const|let|type|class|function)\\*? ${name}\\b|^await ${name}\\b`,
    'm',
  )

/**
 * A top-level statement of a file, with the comment before it, as it stands there.
 *
 * @throws {Error} if there is not exactly one of that name
 */
export function declaration(path: string, name: string): string {
  const found = read(path)
    .split(START)
    .filter((chunk) => declares(name).test(chunk))
  if (found.length !== 1) throw new Error(`${path} declares ${found.length} ${name}`)
  return `${found[0].trim()}\n`
}

/** The line of a declaration, or of a method; 0 if there is none. */
function lineOf(source: string, name: string): number {
  const method = new RegExp(`^ {2}(?:async |static )*${name}\\(`)
  const lines = source.split('\n')
  const at = lines.findIndex((line) => declares(name).test(line))
  return 1 + (at >= 0 ? at : lines.findIndex((line) => method.test(line)))
}

/** Lines with ' ', '-' or '+' before them: the shortest way from `a` to `b`. */
export function diff(a: string[], b: string[]): string[] {
  const length = Array.from({ length: a.length + 1 }, () => Array(b.length + 1).fill(0))
  for (let i = a.length - 1; i >= 0; i--) {
    for (let j = b.length - 1; j >= 0; j--) {
      const same = a[i] === b[j]
      const one = Math.max(length[i + 1][j], length[i][j + 1])
      length[i][j] = same ? 1 + length[i + 1][j + 1] : one
    }
  }
  const out: string[] = []
  for (let i = 0, j = 0; i < a.length || j < b.length; ) {
    const same = i < a.length && j < b.length && a[i] === b[j]
    const takes = j === b.length || (i < a.length && length[i + 1][j] >= length[i][j + 1])
    if (same) out.push(` ${a[i++]}`, ...(j++, []))
    else out.push(takes ? `-${a[i++]}` : `+${b[j++]}`)
  }
  return out
}

const diffBlock = (a: string, b: string) =>
  `${diff(a.trimEnd().split('\n'), b.trimEnd().split('\n')).join('\n')}\n`

const stepFile = (number: string) => {
  const name = readdirSync(join(ROOT, 'steps')).find((name) => name.startsWith(number))
  if (!name) throw new Error(`there is no step ${number}`)
  return `steps/${name}`
}

/** What a block has to hold; undefined where it only has to be a part of something. */
export async function expectedBody({ kind, args }: Block): Promise<string | undefined> {
  const [first, second, third] = args.split(' ')
  if (kind === 'output') return (await once(args, () => run(args, makeRoot()))).output
  if (kind === 'after') {
    const { root, command, output } = await doExercise(first)
    const rest = args.slice(first.length + 1)
    return rest === command ? output : (await once(args, () => run(rest, root))).output
  }
  if (kind === 'exercise') return diffBlock(exercise(first).from, exercise(first).to)
  if (kind === 'file' && second) return declaration(first, second)
  if (kind !== 'diff') return undefined
  return diffBlock(...([first, second].map((n) => declaration(stepFile(n), third)) as Two))
}

type Two = [string, string]

/** What is wrong with a block of which there is no more than a part to compare. */
export function partProblem({ kind, args, body }: Block): string | undefined {
  const source = read(args)
  if (kind === 'log') return logProblem(source.split('\n'), body.trimEnd().split('\n'))
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

/** Runs a command as a reader's shell would; `output` is what their terminal shows. */
export function run(command: string, cwd: string): Promise<Result> {
  const tsx = `"${process.execPath}" --import tsx`
  const direct = command
    .replaceAll('npx tsx ', `${tsx} `)
    .replaceAll('npm run -s view', `${tsx} steps/support/view.ts`)
  const env = { PATH: process.env.PATH, HOME: cwd, LC_ALL: 'C' }
  const options = { cwd, env, timeout: 30_000, maxBuffer: 1e7 }
  return new Promise((done, failed) => {
    const child = execFile('sh', ['-c', `exec 2>&1\n${direct}`], options, (error, stdout) => {
      const code = error ? Number(error.code) : 0
      if (Number.isInteger(code)) done({ code, output: stdout })
      else failed(error)
    })
    child.stdin?.end()
  })
}

const runs = new Map<string, Promise<unknown>>()

function once<T>(key: string, start: () => Promise<T>): Promise<T> {
  if (!runs.has(key)) runs.set(key, start())
  return runs.get(key) as Promise<T>
}

function exercise(id: string) {
  const found = EXERCISES[id]
  if (!found) throw new Error(`test/exercises.ts has no ${id}`)
  return found
}

/** Does an exercise once: a fresh copy, the edit, the run. */
export function doExercise(id: string): Promise<Result & { root: string; command: string }> {
  return once(`exercise ${id}`, async () => {
    const { step, from, to, args = '' } = exercise(id)
    const root = makeRoot()
    editStep(root, step, from, to)
    const command = `npx tsx steps/${step}.ts${args}`
    return { ...(await run(command, root)), root, command }
  })
}

/** A page with its quotes, line numbers and minutes as they have to be now. */
export async function updatePage(page: Page): Promise<string> {
  let text = ''
  let end = 0
  for (const match of page.text.matchAll(BLOCK)) {
    const [whole, kind = '', args = '', lang, body] = match
    const now = await expectedBody({ kind, args, lang, body, line: 0 })
    text += page.text.slice(end, match.index)
    end = match.index + whole.length
    text += now === undefined ? whole : `${whole.slice(0, -3 - body.length)}${now}\`\`\``
  }
  text += page.text.slice(end)
  return text
    .replace(LINK, (link, label, target) => {
      const [file] = target.split('#')
      const path = posix.join(posix.dirname(page.path), file)
      const name = /^`(.+)`$/.exec(label)?.[1]
      if (!file.endsWith('.ts') || !name || basename(path) === name) return link
      const line = lineOf(read(path), name)
      return line === 0 ? link : `[${label}](${file}#L${line})`
    })
    .replace(/\d+(<!-- = (minutes .+?) -->)/g, (_, comment, spec) => {
      return figure(spec, page) + comment
    })
}
