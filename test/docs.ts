/**
 * The rules that README.md and docs/ keep, and the program that helps to keep them. What
 * a writer has to know stands in docs.test.ts.
 */
import { existsSync, readdirSync, readFileSync } from 'node:fs'
import { basename, dirname, join, posix } from 'node:path'
import {
  anchorOf,
  BLOCK,
  type Block,
  blank,
  CODE,
  COMMENT,
  FIGURE,
  headingsOf,
  isChinese,
  LINK,
  lineAt,
  type Page,
  parsePage,
  read,
} from './markdown.ts'
import { expectedBody, figure, lineOf } from './quotes.ts'

const ROOT = dirname(import.meta.dirname)
const exists = (path: string) => existsSync(join(ROOT, path))

/** Returns what is wrong on a page, a sentence per fault. */
type Rule = (page: Page) => string[]

const QUOTES = ['file', 'diff', 'log', 'output', 'exercise', 'after', 'write']

/** Without a comment a block can only be commands to type, or a Mermaid drawing. */
const blocksAreQuotes: Rule = ({ blocks, text }) => {
  const wrong = blocks.flatMap(({ kind, lang, line, body }) => {
    if (QUOTES.includes(kind)) return body ? [] : `line ${line}: empty, run npm run docs`
    if (kind === 'drawing' || (kind === '' && lang === 'mermaid')) {
      const loose = looseFigures(body, false)
      return loose.map((found) => `line ${line}: a figure in a drawing: ${found}`)
    }
    if (kind === '' && lang === 'sh') return []
    return `line ${line}: nothing checks this block (${kind || 'no comment before it'})`
  })
  const rest = text.replace(BLOCK, blank).replace(FIGURE, '')
  const stray = [...rest.matchAll(COMMENT)].map(({ 0: comment, index }) => {
    return `line ${lineAt(rest, index)}: this comment says nothing here: ${comment}`
  })
  return [...wrong, ...stray]
}

/** Digits that are a part of a name: lanes, ids, steps, the article's lessons. */
const NAMES = /\b(?:sub-\d|tool_\d|s0\d\w*|(?:0\d|10)-[a-z]+(?:-[a-z]+)*)\b/g
/** What digits may stand for without a source: a place in a list, a step, a section. */
const NO_FIGURE =
  /^ *\d+\. |\b0[1-9](?: (?:to|到) 10)?\b|^# 10 |\b10 · |(?:\b[Ss]tep |\bchapter |第 )10\b|§\d(?:\.\d)?|\bPart [12]\b/g
// One and two are left to grammar: a pair is seen at once.
const NUMBERS = [
  ...'zero one two three four five six seven eight nine ten eleven twelve'.split(' '),
  ...'thirteen fourteen fifteen sixteen seventeen eighteen nineteen twenty'.split(' '),
]
const ENGLISH = new RegExp(
  `\\b(?:${NUMBERS.slice(3).join('|')}|thirty|forty|fifty|hundreds?|thousands?|dozen` +
    '|third|fourth|fifth|sixth|seventh|eighth|ninth|tenth|half|twice)\\b',
  'gi',
)
const CHINESE = /[三四五六七八九十百千](?!分(?!钟)|方|处|万)|一半|[一两]倍/g

function looseFigures(line: string, chinese: boolean): string[] {
  const text = line.replace(NAMES, '').replace(NO_FIGURE, '')
  const patterns = [/\d[\d,.]*/g, ENGLISH, ...(chinese ? [CHINESE] : [])]
  return patterns.flatMap((pattern) => text.match(pattern) ?? [])
}

const noLooseFigures: Rule = (page) =>
  page.prose.split('\n').flatMap((line, i) => {
    const loose = looseFigures(line, isChinese(page))
    return loose.map((found) => `line ${i + 1}: where is ${found} from? ${line.trim()}`)
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

/** A path in inline code exists; what holds a digit stands in a step or a recording. */
const codeIsReal: Rule = ({ text, blocks }) => {
  const quoted = blocks.map(({ body }) => body).join('\n')
  const spans = text.replace(BLOCK, '').replace(COMMENT, '').matchAll(CODE)
  return [...spans].flatMap(([, , code]) => {
    if (/[<*…]|NN|^https?:/.test(code)) return [] // a pattern or an address
    if (/^(?:npx|npm|diff|git|cp) /.test(code)) return commandProblems(code, blocks)
    if (/^(?:steps|docs|test|logs\/recorded)\/\S*$/.test(code)) {
      return existsFor(blocks, code) ? [] : `there is no ${code}`
    }
    if (
      !/\d/.test(code.replace(NAMES, '')) ||
      quoted.includes(code) ||
      corpus().includes(code)
    )
      return []
    return `\`${code}\` stands in no step, recording or block`
  })
}

let found = ''

/** All steps and recordings; these also with the strings in them as they are. */
function corpus(): string {
  const textsIn = (folder: string) =>
    readdirSync(join(ROOT, folder), { withFileTypes: true, recursive: true })
      .filter((entry) => entry.isFile())
      .map(({ parentPath, path, name }) => join(parentPath ?? path, name))
      .map((file) => readFileSync(file, 'utf8'))
  if (found === '') {
    const logs = textsIn(join('logs', 'recorded')).join('\n')
    const plain = logs.replaceAll('\\n', '\n').replaceAll('\\"', '"')
    found = [...textsIn('steps'), read('package.json'), logs, plain].join('\n')
  }
  return found
}

const commandsExist: Rule = ({ blocks }) =>
  blocks
    .filter(({ lang }) => lang === 'sh')
    .flatMap(({ body }) => withoutComments(body).split('\n'))
    .flatMap((command) => commandProblems(command, blocks))

const withoutComments = (shell: string) => shell.replace(/(^|[ \t]+)#.*/gm, '')

/** Whether a path is in the repository, or is made by a reader of these blocks. */
function existsFor(blocks: Block[], path: string): boolean {
  const isMade = ({ kind, args }: Block) =>
    kind === 'write' && `${args}/`.startsWith(`${path}/`)
  return exists(path) || blocks.some(isMade)
}

function commandProblems(command: string, blocks: Block[]): string[] {
  const { scripts } = JSON.parse(read('package.json'))
  const paths = command.match(/\b(?:steps|docs|test|logs\/recorded)\/[\w./-]+/g) ?? []
  const names = [...command.matchAll(/npm run (?:-s )?(\w+)/g)].map(([, name]) => name)
  return [
    ...paths
      .filter((path) => !existsFor(blocks, path))
      .map((path) => `there is no ${path}`),
    ...names
      .filter((name) => !scripts[name])
      .map((name) => `package.json has no script ${name}`),
  ].map((problem) => `${command}: ${problem}`)
}

const linksLeadSomewhere: Rule = (page) =>
  [...page.text.replace(BLOCK, '').matchAll(LINK)].flatMap(([link, label, target]) => {
    if (target.startsWith('https://')) return []
    const [file, anchor] = target.split('#')
    const path = file ? posix.join(posix.dirname(page.path), file) : page.path
    if (file && !exists(path)) return `${link}: there is no ${path}`
    if (path.endsWith('.ts')) return sourceProblem(link, label, path, anchor)
    if (anchor === undefined) return []
    const there = path === page.path ? page : parsePage(path, read(path))
    const anchors = headingsOf(there).map(({ title }) => anchorOf(title))
    return anchors.includes(anchor) ? [] : `${link}: ${path} has no such heading`
  })

/** A link to code that is named by code is named after the file or what it declares. */
function sourceProblem(link: string, label: string, path: string, anchor?: string) {
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

/** What a page and its translation must have in common, and have not. */
export function pairProblems(english: Page, chinese: Page): string[] {
  const compare = (what: string, aspect: (page: Page) => string[]) => {
    const [a, b] = [aspect(english), aspect(chinese)]
    const i = a.findIndex((item, i) => item !== b[i])
    if (i < 0 && a.length === b.length) return []
    const at = i < 0 ? a.length : i
    return `${what} ${at + 1}: ${a[at] ?? 'none'} | ${b[at] ?? 'none'}`
  }
  return [
    compare('heading', (page) => headingsOf(page).map(({ level }) => '#'.repeat(level))),
    compare('block', ({ blocks }) =>
      blocks.map(({ kind, args, lang, body }) => {
        const own = kind === 'drawing' || lang === 'mermaid'
        const said = lang === 'sh' ? withoutComments(body) : own ? '' : body
        return `${kind} ${args} ${lang}\n${said}`
      }),
    ),
    compare('figure', ({ text }) =>
      [...text.matchAll(FIGURE)].map(([, , spec]) => spec).sort(),
    ),
  ].flat()
}

/** The parts of a chapter. */
const PARTS = [
  'The problem, The idea, The code that is new, Run it, Read the log, ' +
    'What this does not solve, In the articles, Try it',
  '问题, 思路, 新代码, 跑一遍, 看日志, 它不解决什么, 两篇文章怎么做, 动手试试',
]

/** What makes a page no chapter of the step that it is named after. */
export function chapterProblems(page: Page): string[] {
  const step = posix.basename(page.path, '.md')
  const titles = (level: number) =>
    headingsOf(page).flatMap((heading) => (heading.level === level ? heading.title : []))
  const kinds = page.blocks.map(({ kind }) => kind)
  const exercises = kinds.filter((kind) => kind === 'exercise').length
  const has = (...wanted: string[]) => wanted.some((kind) => kinds.includes(kind))
  const [parts, wanted] = [titles(2).join(', '), PARTS[isChinese(page) ? 1 : 0]]
  const drawn = has('drawing') || page.blocks.some(({ lang }) => lang === 'mermaid')
  return [
    exists(`steps/${step}.ts`) ? '' : 'there is no such step',
    titles(1)[0]?.startsWith(`${step.slice(0, 2)} · `) ? '' : 'its title has no number',
    parts === wanted ? '' : `its parts are ${parts}, not ${wanted}`,
    exercises === 2 || exercises === 3 ? '' : `it has ${exercises} exercises`,
    has('file', 'diff') ? '' : 'it quotes no code',
    has('log') ? '' : 'it quotes no log',
    has('output') ? '' : 'it shows no run',
    drawn ? '' : 'it draws nothing',
  ].filter(Boolean)
}

/** A page with its quotes, line numbers and minutes as they have to be now. */
export async function updatePage(page: Page): Promise<string> {
  let text = ''
  let end = 0
  for (const [i, match] of [...page.text.matchAll(BLOCK)].entries()) {
    const { body } = page.blocks[i]
    const now = (await expectedBody(page.blocks[i])) ?? body
    const bodyEnd = match.index + match[0].length - '```'.length
    text += page.text.slice(end, bodyEnd - body.length) + now
    end = bodyEnd
  }
  return (text + page.text.slice(end))
    .replace(LINK, (link, label, target) => {
      const [file] = target.split('#')
      const name = /^`(.+)`$/.exec(label)?.[1]
      if (!file.endsWith('.ts') || !name || basename(file) === name) return link
      const line = lineOf(read(posix.join(posix.dirname(page.path), file)), name)
      return line === 0 ? link : `[${label}](${file}#L${line})`
    })
    .replace(/\d+(<!-- = (minutes .+?) -->)/g, (_, source, spec) => {
      return figure(spec, page) + source
    })
}
