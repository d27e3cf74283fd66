/** What tests share: a clone of its own in which a step runs as a process, and waiting. */
import assert from 'node:assert/strict'
import { type ChildProcessWithoutNullStreams, spawn } from 'node:child_process'
import { readdirSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { compile, makeRoot } from './root.ts'

export * from './root.ts'

// biome-ignore lint/suspicious/noExplicitAny: tests look into it field by field
export type Json = Record<string, any>

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

const children = new Set<ChildProcessWithoutNullStreams>()
process.on('exit', () => {
  for (const child of children) child.kill('SIGKILL')
})

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
  const source = `steps/${step}.ts`
  const file = options.tsx ? ['--import', 'tsx', source] : [compile(root, source)]
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
