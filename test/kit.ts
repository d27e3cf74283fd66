/** What tests share: a clone of its own in which a step runs as a process, and waiting. */
import assert from 'node:assert/strict'
import { type ChildProcessWithoutNullStreams, spawn } from 'node:child_process'
import {
  cpSync,
  existsSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  realpathSync,
  renameSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs'
import { createRequire } from 'node:module'
import { tmpdir } from 'node:os'
import { dirname, join, resolve } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'

// biome-ignore lint/suspicious/noExplicitAny: tests look into it field by field
export type Json = Record<string, any>

/** A test's own context, as far as cleaning up needs it. */
export type Context = { after: (done: () => void | Promise<void>) => void }

/** Where there are no signals, no process groups, no sh. */
export const posix = { skip: process.platform === 'win32' && 'needs a POSIX system' }

/** Waits until `condition` holds; fails, naming `what`, after `ms`. */
export async function until(condition: () => unknown, what = '', ms = 15_000) {
  for (const start = Date.now(); !condition(); await sleep(10)) {
    if (Date.now() - start > ms) assert.fail(`waited in vain for ${what || condition}`)
  }
}

export function isAlive(pid: number): boolean {
  try {
    process.kill(pid, 0)
  } catch {
    return false
  }
  if (process.platform !== 'linux') return true
  // One that nobody has waited for is dead all the same.
  return !/\) Z /.test(readFileSync(`/proc/${pid}/stat`, 'utf8'))
}

/** All that a folder holds, by name. */
export function filesOf(folder: string): Record<string, string> {
  const names = readdirSync(folder).sort()
  return Object.fromEntries(
    names.map((name) => [name, readFileSync(join(folder, name), 'utf8')]),
  )
}

const REPOSITORY = resolve(import.meta.dirname, '..')
const roots = new Set<string>()
const children = new Set<ChildProcessWithoutNullStreams>()
process.on('exit', () => {
  for (const child of children) child.kill('SIGKILL')
  for (const root of roots) removeRoot(root)
})

function removeRoot(root: string) {
  roots.delete(root)
  rmSync(root, { recursive: true, force: true, maxRetries: 3 })
}

/**
 * A fresh copy of what a reader has cloned: steps, recordings, package.json and a link
 * to node_modules. Removed after the test `t`, or when the test process ends.
 */
export function makeRoot(t?: Context): string {
  const root = realpathSync(mkdtempSync(join(tmpdir(), 'steps-')))
  roots.add(root)
  t?.after(() => removeRoot(root))
  for (const part of ['steps', 'logs/recorded', 'package.json']) {
    cpSync(join(REPOSITORY, part), join(root, part), { recursive: true })
  }
  // A junction needs no special rights on Windows; elsewhere the word is ignored.
  symlinkSync(join(REPOSITORY, 'node_modules'), join(root, 'node_modules'), 'junction')
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
  const parts = readFileSync(path, 'utf8').split(from)
  if (parts.length - 1 !== times) {
    throw new Error(`${step} has ${parts.length - 1} times, not ${times}: ${from}`)
  }
  writeFileSync(path, parts.join(to))
}

// The very compiler that tsx uses, and brings along.
const tsx = createRequire(import.meta.url).resolve('tsx/package.json')
const { buildSync, transformSync } = createRequire(tsx)('esbuild')
const compiled = new Map<string, string>() // by source

/** The SDK in one file, made once: to load its many files is half of what a run costs. */
function sdkInOneFile(): string {
  const sdk = createRequire(import.meta.url).resolve('@anthropic-ai/sdk')
  const { version } = JSON.parse(readFileSync(join(dirname(sdk), 'package.json'), 'utf8'))
  const cache = join(REPOSITORY, 'node_modules', '.cache')
  const path = join(cache, `sdk-${version}.cjs`)
  if (existsSync(path)) return path
  const own = `${path}.${process.pid}` // other test files may be making it, too
  const options = { bundle: true, platform: 'node', format: 'cjs', logLevel: 'error' }
  buildSync({ ...options, entryPoints: [sdk], outfile: own })
  renameSync(own, path)
  return path
}

/**
 * Compiles a step of a root (or all) and what steps share, as they stand there now, to
 * `.mjs` files beside them. That is what tsx does anew in each process; done once per
 * source it halves what a run costs.
 */
export function compileSteps(root: string, step = ''): void {
  if (root === REPOSITORY) throw new Error('nothing is compiled into the repository')
  const all = readdirSync(join(root, 'steps'), { recursive: true }).map(String)
  const wanted = all.filter((path) => path.startsWith('support') || path.startsWith(step))
  for (const name of wanted.filter((path) => path.endsWith('.ts'))) {
    const path = join(root, 'steps', name)
    const source = readFileSync(path, 'utf8')
    let code = compiled.get(source)
    if (code === undefined) {
      const options = { loader: 'ts', format: 'esm', target: 'es2023' }
      const plain: string = transformSync(source, options).code
      code = plain
        .replace(/(\bfrom "\.[^"]+)\.ts"/g, '$1.mjs"')
        .replace(
          /\)\(\s*"@anthropic-ai\/sdk"\s*\)/,
          () => `)(${JSON.stringify(sdkInOneFile())})`,
        )
      compiled.set(source, code)
    }
    const to = path.replace(/\.ts$/, '.mjs')
    // Another step may be reading what is there: it is written only when it has changed.
    if (!existsSync(to) || readFileSync(to, 'utf8') !== code) writeFileSync(to, code)
  }
}

export type StepOptions = {
  /** The file's name under steps/, without `.ts`. */
  step: string
  args?: string[]
  /** Run by tsx itself, as a reader does; else what tsx would make of it is run. */
  tsx?: boolean
  /** Added to an environment that holds nothing but what a process needs. */
  env?: Record<string, string>
  /** Written to `.env` as it is. */
  dotenv?: string | Buffer
  /** What is piped in; by default nothing; null leaves the pipe open for the test. */
  stdin?: string | null
  /** A folder of `makeRoot`, to be shared by several runs. */
  root?: string
  /** The run is killed and the result rejected after this many ms. */
  timeout?: number
}

export type StepResult = {
  code: number | null
  signal: NodeJS.Signals | null
  stdout: string
  stderr: string
  root: string
}

/** Runs a step to its end, as a reader does. */
export function runStep(options: StepOptions): Promise<StepResult> {
  return startStep(options).result
}

/**
 * Starts a step: its process, the promise of its result, and `output(pattern)`, which
 * resolves once stdout matches and rejects if the step ends without.
 */
export function startStep(options: StepOptions) {
  const { step, args = [], env, dotenv, stdin = '', timeout = 30_000 } = options
  const root = options.root ?? makeRoot()
  if (dotenv !== undefined) writeFileSync(join(root, '.env'), dotenv)
  if (!options.tsx) compileSteps(root, step)
  const file = options.tsx
    ? ['--import', 'tsx', `steps/${step}.ts`]
    : [`steps/${step}.mjs`]
  const child = spawn(process.execPath, [...file, ...args], {
    cwd: root,
    env: { ...leanEnvironment(root), ...env },
  })
  children.add(child)
  // A step may end without having read its input.
  child.stdin.on('error', () => {})
  if (stdin !== null) child.stdin.end(stdin)

  const result: StepResult = { code: null, signal: null, stdout: '', stderr: '', root }
  for (const name of ['stdout', 'stderr'] as const) {
    child[name].setEncoding('utf8').on('data', (piece) => {
      result[name] += piece
    })
  }
  const ended = new Promise<StepResult>((done, failed) => {
    const timer = setTimeout(() => {
      child.kill('SIGKILL')
      failed(new Error(`${step} did not end in ${timeout} ms:\n${show(result)}`))
    }, timeout)
    child.once('error', failed)
    child.once('exit', (code, signal) => {
      Object.assign(result, { code, signal })
      children.delete(child)
      clearTimeout(timer)
      // The pipes may outlive the step in a process that it has left behind.
      setTimeout(() => {
        child.stdout.destroy()
        child.stderr.destroy()
        done(result)
      }, 2000).unref()
    })
    child.once('close', () => done(result))
  })
  const output = async (pattern: string | RegExp) => {
    const over = ended.then(() => true)
    while (!result.stdout.match(pattern)) {
      const tick = sleep(10, false)
      if (!(await Promise.race([over, tick])) || result.stdout.match(pattern)) continue
      throw new Error(`${step} ended without ${pattern}:\n${show(result)}`)
    }
  }
  return { child, root, result: ended, output }
}

const show = ({ stdout, stderr }: StepResult) => `${stdout}\n${stderr}`

/** No more than what a process needs, so that nobody's own settings disturb a test. */
export function leanEnvironment(root: string): NodeJS.ProcessEnv {
  const kept = ['PATH', 'PATHEXT', 'SystemRoot', 'ComSpec', 'TEMP', 'TMP']
  const pairs = kept.map((name) => [name, process.env[name]])
  return {
    ...Object.fromEntries(pairs.filter(([, value]) => value !== undefined)),
    HOME: root,
    ...(process.platform === 'win32' && { USERPROFILE: root }),
  }
}

/**
 * A lane's file, taken apart: what it ran with, its messages as the API takes them, its
 * events, and every line as it stands there.
 *
 * @param path relative to `root`, such as `logs/04-subagent/parent.log`
 * @throws {Error} for a file that is missing or has a broken or torn line
 */
export function readLane(root: string, path: string) {
  const file = readFileSync(join(root, path), 'utf8')
  if (!file.endsWith('\n')) throw new Error(`${path}: the last line is torn`)
  const lines: Json[] = file
    .slice(0, -1)
    .split('\n')
    .map((line) => JSON.parse(line))
  const messages: Json[] = lines
    .filter((line) => line.role)
    .map(({ role, content }) => ({ role, content }))
  return { header: lines[0], messages, events: lines.filter((line) => line.event), lines }
}
