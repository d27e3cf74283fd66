/** README.md and docs/ taken apart: blocks, figures, links, headings, prose. */
import { readdirSync, readFileSync } from 'node:fs'
import { dirname, join } from 'node:path'

const ROOT = dirname(import.meta.dirname)

/**
 * A fenced block, with what the comment before it says; `line` counts from 1. `files` are
 * what the page lets a reader write before a command that names their folder.
 */
export type Block = {
  kind: string
  args: string
  lang: string
  body: string
  line: number
  files: { path: string; body: string }[]
}

/** `prose` is the text without blocks, figures, comments, code and addresses. */
export type Page = { path: string; text: string; blocks: Block[]; prose: string }

export const BLOCK = /^(?:<!-- (\w+)(?:: (.*))? -->\n)?```(\w*)\n([\s\S]*?)^```$/gm
export const COMMENT = /<!--[\s\S]*?-->/g
/** A number or a word for one, and behind it where it comes from. */
export const FIGURE = /(\d[\d,]*(?:\.\d+)?|[A-Za-z]+)<!-- = (.+?) -->/g
export const CODE = /(`+)([^\n]+?)\1(?!`)/g
export const LINK = /\[([^\]]*)\]\(([^)\s]+)\)/g

/** Takes a piece out, but not its lines: they are counted in messages. */
export const blank = (text: string) => text.replace(/[^\n]+/g, '')
export const lineAt = (text: string, at: number) => text.slice(0, at).split('\n').length
export const isChinese = ({ path }: Page) => path.startsWith('docs/zh/')

/** A file by its path in the repository, written with slashes. */
export const read = (path: string) => readFileSync(join(ROOT, path), 'utf8')

export function parsePage(path: string, text: string): Page {
  const blocks = [...text.matchAll(BLOCK)].map((match): Block => {
    const [, kind = '', args = '', lang, body] = match
    return { kind, args, lang, body, line: lineAt(text, match.index), files: [] }
  })
  const written = blocks.filter(({ kind }) => kind === 'write')
  for (const block of blocks) {
    block.files = written
      .map(({ args, body }) => ({ path: args, body }))
      .filter(({ path }) => block.kind === 'output' && block.args.includes(dirname(path)))
  }
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
  const inFolder = (folder: string) => {
    const names = readdirSync(join(ROOT, folder)).filter((name) => name.endsWith('.md'))
    return names.sort().map((name) => `${folder}/${name}`)
  }
  const paths = ['README.md', ...inFolder('docs'), ...inFolder('docs/zh')]
  return paths.map((path) => parsePage(path, read(path)))
}

export function headingsOf({ text }: Page): { level: number; title: string }[] {
  const found = text.replace(BLOCK, '').matchAll(/^(#+) (.+)$/gm)
  return [...found].map(([, marks, title]) => ({ level: marks.length, title }))
}

/** As GitHub makes an anchor of a heading. */
export function anchorOf(title: string): string {
  const plain = title.replace(/\[([^\]]*)\]\([^)]*\)/g, '$1').toLowerCase()
  return plain.replace(/[^\p{L}\p{M}\p{N}_ -]/gu, '').replaceAll(' ', '-')
}
