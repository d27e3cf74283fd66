/** README.md and docs/ taken apart: blocks, links, headings. */
import { readdirSync, readFileSync } from 'node:fs'
import { dirname, join } from 'node:path'

export const ROOT = dirname(import.meta.dirname)

/**
 * A fenced block, with what the comment before it says; `line` counts from 1. `edits` are
 * the blocks of the page that make the exercise which an `after` block shows.
 */
export type Block = {
  kind: string
  args: string
  lang: string
  body: string
  line: number
  edits: Block[]
}

export type Page = { path: string; text: string; blocks: Block[] }

export const BLOCK = /^(?:<!-- (\w+)(?:: (.*))? -->\n)?```(\w*)\n([\s\S]*?)^```$/gm
export const COMMENT = /<!--[\s\S]*?-->/g
export const CODE = /(`+)([^\n]+?)\1(?!`)/g
export const LINK = /\[([^\]]*)\]\(([^)\s]+)\)/g

/** Takes a piece out, but not its lines: they are counted in messages. */
export const blank = (text: string) => text.replace(/[^\n]+/g, '')
export const lineAt = (text: string, at: number) => text.slice(0, at).split('\n').length
export const isChinese = ({ path }: Page) => path.startsWith('docs/zh/')
export const idOf = ({ args }: Block) => args.split(' ')[0]

/** A file by its path in the repository, written with slashes. */
export const read = (path: string) => readFileSync(join(ROOT, path), 'utf8')

export function parsePage(path: string, text: string): Page {
  const blocks = [...text.matchAll(BLOCK)].map((match): Block => {
    const [, kind = '', args = '', lang, body] = match
    return { kind, args, lang, body, line: lineAt(text, match.index), edits: [] }
  })
  for (const block of blocks.filter(({ kind }) => /^(after|exercise)$/.test(kind))) {
    block.edits = blocks.filter(
      (edit) => /^(exercise|write)$/.test(edit.kind) && idOf(edit) === idOf(block),
    )
  }
  return { path, text, blocks }
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
