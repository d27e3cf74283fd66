/**
 * Runs every test file, several at a time: much of a test is waiting for processes. They are
 * listed here, since `node --test` on Node 20 expands no globs, and with a folder and a
 * loader runs nothing and still passes. They run compiled: tsx would take longer to begin
 * than many of them to end.
 */
import { mkdirSync, readdirSync, readFileSync, writeFileSync } from 'node:fs'
import { dirname, join, parse } from 'node:path'
import { run } from 'node:test'
import { spec } from 'node:test/reporters'
import { pathToFileURL } from 'node:url'
import { CACHE, REPOSITORY, toScript } from './root.ts'

// What takes longest begins first, so that it is not what all else waits for in the end.
const LONG = ['page', 'docs', 'offline', 'live', 'stop', 'compaction', 'bash']

/** Compiles a source as if it stood where it does; returns the path of what came out. */
function compile(path: string): string {
  const filename = join(REPOSITORY, path)
  const define = {
    'import.meta.dirname': JSON.stringify(dirname(filename)),
    'import.meta.filename': JSON.stringify(filename),
    'import.meta.url': JSON.stringify(pathToFileURL(filename).href),
  }
  const options = { define, sourcemap: 'inline', sourcefile: filename }
  const to = join(CACHE, path.replace(/ts$/, 'mjs'))
  mkdirSync(dirname(to), { recursive: true })
  writeFileSync(to, toScript(readFileSync(filename, 'utf8'), path, options))
  return to
}

const names = readdirSync(import.meta.dirname).filter((name) => name.endsWith('.ts'))
const long = LONG.map((name) => `${name}.test.ts`)
const paths = new Set([...long, ...names].map((name) => `test/${name}`))
const isTest = (path: string) => path.endsWith('.test.mjs')
const files = [...paths, 'docs/page/join.ts'].map(compile).filter(isTest)
const seen = new Set<string>()
// Each file's Node is given what this one was given.
process.execArgv.splice(0, Number.POSITIVE_INFINITY, '--enable-source-maps')

run({ files, concurrency: 6 })
  .on('test:pass', ({ name, file }) => {
    if (!isTest(name)) seen.add(parse(String(file)).name)
  })
  .on('test:fail', () => {
    process.exitCode = 1
  })
  .on('end', () => {
    for (const path of files.filter((path) => !seen.has(parse(path).name))) {
      console.error(`No test has passed in ${path}.`)
      process.exitCode = 1
    }
  })
  .compose(new spec())
  .pipe(process.stdout)
