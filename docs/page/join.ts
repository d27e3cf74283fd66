/** `npm run page` joins the sources in docs/page/ and the recordings into one page. */
import { createHash } from 'node:crypto'
import { readdirSync, readFileSync, realpathSync, writeFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import process from 'node:process'

const ROOT = dirname(dirname(import.meta.dirname))
const SOURCES = import.meta.dirname
export const RECORDED = join(ROOT, 'logs', 'recorded')
export const PAGE = join(ROOT, 'docs', 'index.html')

/** Each part comes behind those that it imports. */
const STYLES = ['base.css', 'panel.css', 'stage.css', 'narrow.css']
const SCRIPTS = [
  'lane.js',
  'session.js',
  'facts.js',
  'run.js',
  'words-en.js',
  'words-zh.js',
  'view.js',
  'card.js',
  'links.js',
  'stage.js',
  'plot.js',
  'told.js',
  'finder.js',
  'files.js',
  'page.js',
]

const read = (name: string) => readFileSync(join(SOURCES, name), 'utf8')

/** The page as the sources and the recordings give it. */
export function makePage(): string {
  const style = `\n${STYLES.map(read).join('\n')}`
  const script = `\n${SCRIPTS.map((name) => joinable(read(name))).join('\n')}`
  const policy = [
    "default-src 'none'",
    `script-src '${hashOf(script)}'`,
    `style-src '${hashOf(style)}'`,
    'img-src data:', // the icon
    "base-uri 'none'",
    "form-action 'none'",
    "require-trusted-types-for 'script'", // no text becomes markup, whoever tries
  ].join('; ')
  const parts: Record<string, string> = {
    POLICY: policy,
    '/* STYLE */': style,
    '/* SCRIPT */': script,
    '<!-- RECORDINGS -->\n': recordings(),
  }
  return read('page.html').replace(
    /POLICY|\/\* (STYLE|SCRIPT) \*\/|<!-- RECORDINGS -->\n/g,
    (name) => parts[name],
  )
}

/** In one file the parts see each other: they need no import and no export. */
const joinable = (code: string) =>
  code.replace(/^import [^']*'[^']*'\n+/gm, '').replace(/^export /gm, '')

const hashOf = (text: string) =>
  `sha256-${createHash('sha256').update(text).digest('base64')}`

/** Lanes as they are; in JSON every `<` stands in a string, and may be escaped. */
function recordings(): string {
  const blocks = readdirSync(RECORDED)
    .sort()
    .flatMap((folder) =>
      readdirSync(join(RECORDED, folder))
        .filter((file) => file.endsWith('.log'))
        .sort()
        .map((file) => {
          const text = readFileSync(join(RECORDED, folder, file), 'utf8')
          const start = `<script type="application/jsonl" data-file="${folder}/${file}">`
          return `${start}${text.replaceAll('<', '\\u003c')}</script>\n`
        }),
    )
  return blocks.join('')
}

if (process.argv[1] && realpathSync(process.argv[1]) === import.meta.filename) {
  writeFileSync(PAGE, makePage())
}
