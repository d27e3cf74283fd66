/**
 * The rules that README.md and docs/ keep, and the program that helps to keep them. What
 * a writer has to know stands in docs.test.ts.
 */
import { existsSync } from 'node:fs'
import { basename, join, posix } from 'node:path'
import {
  anchorOf,
  BLOCK,
  blank,
  CODE,
  COMMENT,
  headingsOf,
  isChinese,
  LINK,
  lineAt,
  type Page,
  parsePage,
  ROOT,
  read,
} from './markdown.ts'
import { expectedBody, lineOf } from './quotes.ts'

const exists = (path: string) => existsSync(join(ROOT, path))

/** Returns what is wrong on a page, a sentence per fault. */
type Rule = (page: Page) => string[]

const QUOTES = /^(file|diff|log|output|brief|exercise|after|write)$/

/** Without a comment a block can only be commands to type, or a Mermaid drawing. */
const blocksAreQuotes: Rule = ({ blocks, text }) => {
  const wrong = blocks.flatMap(({ kind, lang, line, body }) => {
    if (QUOTES.test(kind)) return body ? [] : `line ${line}: empty, run npm run docs`
    if (kind === 'drawing' || (kind === '' && /^(sh|mermaid)$/.test(lang))) return []
    return `line ${line}: nothing checks this block (${kind || 'no comment before it'})`
  })
  const rest = text.replace(BLOCK, blank)
  const stray = [...rest.matchAll(COMMENT)].map(({ 0: comment, index }) => {
    return `line ${lineAt(rest, index)}: this comment says nothing here: ${comment}`
  })
  return [...wrong, ...stray]
}

const withoutComments = (shell: string) => shell.replace(/(^|[ \t]+)#.*/gm, '')

/** What commands and inline code name is there: paths, and scripts of package.json. */
const namesExist: Rule = ({ text, blocks }) => {
  const commands = blocks
    .filter(({ lang }) => lang === 'sh')
    .flatMap(({ body }) => withoutComments(body).split('\n'))
  const spans = [...text.replace(BLOCK, '').replace(COMMENT, '').matchAll(CODE)]
  const code = spans.map(([, , code]) => code).filter((code) => !/[<*…]|NN/.test(code))
  const { scripts } = JSON.parse(read('package.json'))
  // What a reader makes: by cp, or by a file that the page tells them to write.
  const made = [
    ...commands.flatMap((command) => /^cp .* (\S+)$/.exec(command)?.[1] ?? []),
    ...blocks.filter(({ kind }) => kind === 'write').map(({ args }) => args),
  ].join('\n')
  return [...commands, ...code].flatMap((words) => {
    const paths = words.match(/\b(?:steps|docs|test|logs\/recorded)\/[\w./-]+/g) ?? []
    const names = [...words.matchAll(/npm run (?:-s )?(\w+)/g)].map(([, name]) => name)
    return [
      ...paths
        .filter((path) => !exists(path) && !made.includes(path))
        .map((path) => `${words}: there is no ${path}`),
      ...names
        .filter((name) => !scripts[name])
        .map((name) => `${words}: package.json has no script ${name}`),
    ]
  })
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
  const name = nameIn(label)
  if (!name || path.endsWith(name)) return anchor ? `${link}: which declaration?` : []
  const line = lineOf(read(path), name)
  if (line === 0) return `${link}: ${path} declares no ${name}`
  return anchor === `L${line}` ? [] : `${link}: ${name} is on line ${line}`
}

/** `openLane` for the labels `openLane` and `session.openLane`, set as code. */
const nameIn = (label: string) => /^`(?:session\.)?(?:lanes\.)?(.+)`$/.exec(label)?.[1]

export const RULES: Record<string, Rule> = {
  'every block is checked': blocksAreQuotes,
  'what is named exists': namesExist,
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
  ].flat()
}

/**
 * What the steps import from support, and what of `session` they use, stands on the page
 * as a link named after it; what else is linked there is stale.
 */
export function supportProblems({ text }: Page, steps: string[]): string[] {
  const sources = steps.map((step) => read(`steps/${step}.ts`))
  const imports = sources.flatMap((source) =>
    [
      ...source.matchAll(/import (?:type )?\{([^}]*)\} from '\.\/(support\/[^']+)'/g),
    ].flatMap(([, names, path]) =>
      names
        .split(',')
        .map((name) => name.trim().replace(/^type /, ''))
        .filter(Boolean)
        .map((name) => `${name} in ${path}`),
    ),
  )
  const uses = sources.flatMap((source) =>
    [...source.matchAll(/\bsession\.(?!ts')((?:lanes\.)?\w+)/g)].map(([, name]) => {
      const path = name.startsWith('lanes.') ? 'run/lanes.ts' : 'session.ts'
      return `session.${name} in support/${path}`
    }),
  )
  const used = new Set([...imports, ...uses])
  used.delete('session.lanes in support/session.ts')
  const links = [...text.matchAll(LINK)]
    .filter(([, , target]) => target.includes('.ts#'))
    .map(([, label, target]) => {
      const path = target.replace('../steps/', '').replace(/#.*/, '')
      return `${label.replaceAll('`', '')} in ${path}`
    })
  return [
    ...[...used]
      .filter((name) => !links.includes(name))
      .map((name) => `missing: ${name}`),
    ...links.filter((name) => !used.has(name)).map((name) => `no step uses ${name}`),
  ]
}

/** The parts that each chapter has, in this order; others may stand between them. */
const PARTS = [
  'The problem, The idea, The code, Run it, Read the log, What it does not solve, Try it',
  '问题, 思路, 代码, 跑一遍, 看日志, 它不解决什么, 动手试试',
]

/** What makes a page no chapter of the step that it is named after. */
export function chapterProblems(page: Page): string[] {
  const step = posix.basename(page.path, '.md')
  const wanted = PARTS[isChinese(page) ? 1 : 0].split(', ')
  const titles = headingsOf(page).map(({ title }) => title)
  const parts = titles.filter((title) => wanted.includes(title))
  // `file: …`, `sh: npx tsx …`: what a block is, and then what is in it.
  const said = page.blocks.map(({ kind, lang, body }) => `${kind || lang}: ${body}`)
  const count = (start: string) => said.filter((block) => block.startsWith(start)).length
  const command = `npx tsx steps/${step}.ts`
  return [
    exists(`steps/${step}.ts`) ? '' : 'there is no such step',
    titles[0]?.startsWith(`${step.slice(0, 2)} · `) ? '' : 'its title has no number',
    parts.join() === wanted.join() ? '' : `its parts are ${parts}, not ${wanted}`,
    count('exercise') + count('write') >= 2 ? '' : 'it has no two exercises',
    count('file') + count('diff') ? '' : 'it quotes no code',
    count('log') ? '' : 'it quotes no log',
    count('output') ? '' : 'it shows no run',
    count('drawing') + count('mermaid') ? '' : 'it draws nothing',
    count(`sh: ${command}`) ? '' : `no block shows ${command}`,
  ].filter(Boolean)
}

/** A page with its quotes and line numbers as they have to be now. */
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
  return (text + page.text.slice(end)).replace(LINK, (link, label, target) => {
    const [file] = target.split('#')
    const name = nameIn(label)
    if (!file.endsWith('.ts') || !name || basename(file) === name) return link
    const line = lineOf(read(posix.join(posix.dirname(page.path), file)), name)
    return line === 0 ? link : `[${label}](${file}#L${line})`
  })
}
