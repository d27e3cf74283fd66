/** What makes tests cheap: a root of their own, written from memory; compiled sources. */
import { spawnSync } from 'node:child_process'
import { createHash } from 'node:crypto'
import * as fs from 'node:fs'
import { createRequire } from 'node:module'
import { tmpdir } from 'node:os'
import { dirname, join, posix, resolve } from 'node:path'
import { pathToFileURL } from 'node:url'

/** A test's own context, as far as cleaning up needs it. */
export type Context = { after: (done: () => void | Promise<void>) => void }

export const REPOSITORY = resolve(import.meta.dirname, '..')
const roots = new Set<string>()
process.on('exit', () => {
  for (const root of roots) removeRoot(root)
})

function removeRoot(root: string) {
  roots.delete(root)
  fs.rmSync(root, { recursive: true, force: true, maxRetries: 3 })
}

/** The files in a folder of the repository and below it, by their paths from its top. */
function filesIn(folder: string): string[] {
  const paths = fs.readdirSync(join(REPOSITORY, folder), { recursive: true })
  return paths
    .map((path) => posix.join(folder, String(path).replaceAll('\\', '/')))
    .filter((path) => fs.statSync(join(REPOSITORY, path)).isFile())
    .sort()
}

/** What a root holds, read once: to copy it file by file costs ten times as much. */
let cloned: Map<string, Buffer> | undefined

/**
 * A fresh copy of what a reader has cloned: steps, recordings, package.json and a link
 * to node_modules. Removed after the test `t`, or when the test process ends.
 */
export function makeRoot(t?: Context): string {
  const root = fs.realpathSync(fs.mkdtempSync(join(tmpdir(), 'steps-')))
  roots.add(root)
  t?.after(() => removeRoot(root))
  const paths = () => [...filesIn('steps'), ...filesIn('logs/recorded'), 'package.json']
  cloned ??= new Map(
    paths().map((path) => [path, fs.readFileSync(join(REPOSITORY, path))]),
  )
  for (const folder of new Set([...cloned.keys()].map(dirname))) {
    fs.mkdirSync(join(root, folder), { recursive: true })
  }
  for (const [path, content] of cloned) fs.writeFileSync(join(root, path), content)
  // A junction needs no special rights on Windows; elsewhere the word is ignored.
  fs.symlinkSync(join(REPOSITORY, 'node_modules'), join(root, 'node_modules'), 'junction')
  return root
}

/**
 * Edits a step in `root` as a reader would: `from`, which must occur there exactly
 * `times`, becomes `to`.
 *
 * @throws {Error} when the step is no longer what the test takes it to be
 */
export function editStep(
  root: string,
  step: string,
  from: string,
  to: string,
  times = 1,
) {
  const path = join(root, 'steps', `${step}.ts`)
  const parts = fs.readFileSync(path, 'utf8').split(from)
  if (parts.length - 1 !== times) {
    throw new Error(`${step} has ${parts.length - 1} times, not ${times}: ${from}`)
  }
  fs.writeFileSync(path, parts.join(to))
}

// The very compiler that tsx uses, and brings along.
const tsx = createRequire(import.meta.url).resolve('tsx/package.json')
const { buildSync, transformSync } = createRequire(tsx)('esbuild')
const compiled = new Map<string, string>() // by source

/**
 * Compiles a step of a root, or a command in support/cli, as it stands there now, to an
 * `.mjs` file beside it, and returns that file's path, from the root as `path` is.
 */
export function compile(root: string, path: string): string {
  if (root === REPOSITORY) throw new Error('nothing is compiled into the repository')
  const source = fs.readFileSync(join(root, path), 'utf8')
  const header = source.slice(0, source.search(/^import /m)) // a run reads it
  const code = compiled.get(source) ?? header + toScript(source, path)
  compiled.set(source, code)
  const to = path.replace(/\.ts$/, '.mjs')
  // Another step may be reading what is there: it is written only when it has changed.
  const now = join(root, to)
  if (!fs.existsSync(now) || fs.readFileSync(now, 'utf8') !== code)
    fs.writeFileSync(now, code)
  return to
}

/**
 * The JavaScript of a source that stands at `path`, as tsx would make it, but that what it
 * imports from steps/support comes out of one script.
 */
export function toScript(source: string, path: string, options = {}): string {
  const folder = dirname(path)
  const open = [
    `import __open from ${JSON.stringify(pathToFileURL(supportLoader()).href)}`,
    `const __support = __open(import.meta.dirname, '${posix.relative(folder, 'steps')}')`,
  ].join(';')
  const common = { loader: 'ts', format: 'esm', target: 'es2023' }
  const { code } = transformSync(`${open};${source}`, { ...common, ...options })
  return code.replace(
    /^(?:import|export) (\{[^}]*\}|\*.*) from "(\.[^"]+)\.ts"/gm,
    (line: string, names: string, from: string) => {
      const module = posix.join(folder, `${from}.ts`)
      if (!module.startsWith('steps/support/')) return line.replace(/ts"$/, 'mjs"')
      const here = names.replace('* as ', '').replaceAll(' as ', ': ')
      return `const ${here} = __support["${module}"]`
    },
  )
}

export const CACHE = join(REPOSITORY, 'node_modules', '.cache')
let loader = ''

/**
 * What steps share, with the packages that it needs, in one script, and beside it what V8
 * has made of that script in a run: to load and compile all of its many modules would be
 * half of what a run costs. Made once for these sources and this Node; returns the path of
 * a module that hands out what is in it.
 */
export function supportLoader(): string {
  if (loader) return loader
  const modules = filesIn('steps/support').filter((path) => path.endsWith('.ts'))
  const sources = [...modules, 'package-lock.json', 'test/root.ts']
  const hash = createHash('sha256').update(process.version)
  for (const path of sources) hash.update(fs.readFileSync(join(REPOSITORY, path)))
  const base = join(CACHE, `support-${hash.digest('hex').slice(0, 16)}`)
  loader = `${base}.cjs`
  if (fs.existsSync(`${base}.code`)) return loader

  fs.mkdirSync(CACHE, { recursive: true })
  for (const old of fs.readdirSync(CACHE).map((name) => join(CACHE, name))) {
    const isStale = Date.now() - fs.statSync(old).mtimeMs > 24 * 60 * 60_000
    if (isStale) fs.rmSync(old, { recursive: true, force: true })
  }
  const bundle = buildSync({
    stdin: {
      contents: `const loadSdk = () => require('@anthropic-ai/sdk')
        module.exports = {
          ${modules.map((path) => `get '${path}'() { return require('./${path}') },`).join('\n')}
          loadSdk,
        }`,
      resolveDir: REPOSITORY,
    },
    define: { 'import.meta.dirname': 'room', 'import.meta.url': 'room' },
    ...{ bundle: true, platform: 'node', format: 'cjs', target: 'es2023', write: false },
    ...{ minifyWhitespace: true, logLevel: 'error' },
  }).outputFiles[0].text.replace(
    /\(0,\w+\.createRequire\)\(room\)\("@anthropic-ai\/sdk"\)/,
    'loadSdk()',
  )
  if (!bundle.includes('=loadSdk()')) throw new Error('the SDK is loaded in another way')
  keep(`${base}.js`, `(function (require, module, room) {${bundle}\n})`)
  keep(
    loader,
    `const fs = require('node:fs')
    const { join } = require('node:path')
    const { Script } = require('node:vm')
    const [path, code] = ${JSON.stringify([`${base}.js`, `${base}.code`])}
    // A Node that cannot use this code says so to no one and compiles the script.
    const cachedData = fs.existsSync(code) ? fs.readFileSync(code) : undefined
    const script = new Script(fs.readFileSync(path, 'utf8'), { filename: path, cachedData })
    if (process.env.KEEP_CODE) process.once('exit', () => {
      fs.writeFileSync(process.env.KEEP_CODE, script.createCachedData())
    })
    const modules = {}
    module.exports = (...path) => {
      const room = join(...path, 'support', 'cli') // or another one: they are as deep
      if (!modules[room]) script.runInThisContext()(require, (modules[room] = {}), room)
      return modules[room].exports
    }`,
  )
  // At its end V8 has compiled what a run needs, and nothing else.
  const root = makeRoot()
  const step = compile(root, 'steps/04-subagent.ts')
  const env = { ...process.env, KEEP_CODE: `${base}.${process.pid}` }
  spawnSync(process.execPath, [step, '--offline'], { cwd: root, env })
  if (fs.existsSync(env.KEEP_CODE)) fs.renameSync(env.KEEP_CODE, `${base}.code`)
  removeRoot(root)
  return loader
}

/** Writes a file in one go: other test files may be making it, too. */
function keep(path: string, content: string) {
  fs.writeFileSync(`${path}.${process.pid}`, content)
  fs.renameSync(`${path}.${process.pid}`, path)
}
