/** `npm run page` brings the recordings, and the page's own hashes, into the page. */
import { createHash } from 'node:crypto'
import { readdirSync, readFileSync, realpathSync, writeFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import process from 'node:process'
import { readFolder } from '../steps/support/base/lane-file.ts'

const ROOT = dirname(import.meta.dirname)
const RECORDED = join(ROOT, 'logs', 'recorded')
export const PAGE = join(ROOT, 'docs', 'index.html')

const DATA =
  /(<!-- The recordings: .*? -->\n)[\s\S]*?(<!-- End of the recordings\. -->\n)/
const POLICY = /(<meta http-equiv="Content-Security-Policy" content=")[^"]*(">)/

/**
 * The page with the recordings as they are in `logs/recorded/`, one block per lane, and
 * with a policy that lets nothing run but the page's own style and script.
 *
 * @throws {Error} naming what the page lacks, or the line that makes a file no log
 */
export function currentPage(html: string): string {
  const blocks = readdirSync(RECORDED)
    .sort()
    .flatMap((name) =>
      readFolder(join(RECORDED, name)).map((lane) => laneBlock(name, lane)),
    )
  const page = replace(html, DATA, (_, start, end) => start + blocks.join('') + end)
  const policy = [
    "default-src 'none'",
    `script-src '${hashOf(page, /<script type="module">([\s\S]*?)<\/script>/)}'`,
    `style-src '${hashOf(page, /<style>([\s\S]*?)<\/style>/)}'`,
    'img-src data:', // the icon
    "base-uri 'none'",
    "form-action 'none'",
    "require-trusted-types-for 'script'", // no text becomes markup, whoever tries
  ]
  return replace(page, POLICY, (_, start, end) => start + policy.join('; ') + end)
}

/** A lane's file as it is; in JSON every `<` stands in a string, and may be escaped. */
function laneBlock(folder: string, lane: { name: string }): string {
  const file = `${lane.name}.log`
  const text = readFileSync(join(RECORDED, folder, file), 'utf8')
  const start = `<script type="application/jsonl" data-file="${folder}/${file}">`
  return `${start}${text.replaceAll('<', '\\u003c')}</script>\n`
}

function hashOf(page: string, pattern: RegExp): string {
  const code = pattern.exec(page)?.[1]
  if (code === undefined) throw new Error(`The page has no part like ${pattern}.`)
  return `sha256-${createHash('sha256').update(code).digest('base64')}`
}

function replace(text: string, pattern: RegExp, by: (...parts: string[]) => string) {
  if (!pattern.test(text)) throw new Error(`The page has no part like ${pattern}.`)
  return text.replace(pattern, by)
}

if (process.argv[1] && realpathSync(process.argv[1]) === import.meta.filename) {
  writeFileSync(PAGE, currentPage(readFileSync(PAGE, 'utf8')))
}
