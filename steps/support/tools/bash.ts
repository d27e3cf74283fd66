/** The body of bash: one command, what it printed and how it ended. Not a sandbox. */
import { isUtf8 } from 'node:buffer'
import { type SpawnOptionsWithStdioTuple, spawn, spawnSync } from 'node:child_process'
import { randomUUID } from 'node:crypto'
import { once } from 'node:events'
import * as fs from 'node:fs'
import type { Socket } from 'node:net'
import { dirname, join } from 'node:path'
import type Anthropic from '@anthropic-ai/sdk'
import { isSecretName } from '../base/secrets.ts'
import type { Tool, ToolContext, ToolInput } from './tool.ts'

export const TIMEOUT_MS = 120_000
/** How long an ended command's output is awaited while something else holds its pipe. */
const GRACE_MS = 150
/** So many bytes are kept of an output's beginning, and as many of its end. */
const KEEP = 15_000

const windows = process.platform === 'win32'
const shell = windows ? (process.env.ComSpec ?? 'cmd.exe') : (findBash() ?? 'sh')
/** The shell's name, for the tool's description. */
export const SHELL = windows ? 'cmd.exe' : shell === 'sh' ? 'sh' : 'bash'

/** Tools as line 1 of a lane holds them: without their code, alike on every machine. */
export function describeTools(tools: Anthropic.Tool[]) {
  const shell = new RegExp(`\\b${SHELL}(?!\\w)`, 'g')
  return tools.map(({ name, description = '', input_schema }) => {
    return { name, description: description.replace(shell, '<shell>'), input_schema }
  })
}

/** A word in the environment of all that this run starts, by which it is found again. */
const RUN = randomUUID()
/** Process groups, by the id of the shell that led them, with members still alive. */
const groups = new Set<number>()
let calls = 0

/**
 * Runs `command` in `workdir`. Returns stdout and stderr in the order they came, and in a
 * last line how it ended, unless with exit code 0. What it leaves in the background goes
 * on until the run ends.
 *
 * @throws {Error} if the shell cannot start or `workdir` is gone
 */
export async function runBash(
  { command }: ToolInput,
  { workdir, signal, timeoutMs = TIMEOUT_MS }: ToolContext & { timeoutMs?: number },
): Promise<string> {
  if (command.includes('\0')) throw new Error('command has a NUL character: leave it out')
  if (!fs.statSync(workdir, { throwIfNoEntry: false })?.isDirectory()) {
    throw new Error(`The working directory ${workdir} is gone`)
  }
  const mark = `${RUN}.${++calls}.`
  const output = collect()
  const child = start(command, workdir, mark)
  const { pid } = child
  if (pid === undefined) throw cannotStart((await once(child, 'error'))[0])
  groups.add(pid)
  child.stdout.on('data', output.add)

  let early = ''
  let abort = () => {}
  let timer: NodeJS.Timeout | undefined
  await new Promise<void>((done) => {
    const doneSoon = () => {
      clearTimeout(timer)
      // However late the timer is, what the pipe already holds is read before `done`.
      timer = setTimeout(() => setImmediate(done), GRACE_MS)
    }
    const stop = (reason: string) => {
      early = reason
      killGroup(pid)
      killMarked(mark)
      doneSoon()
    }
    const limit = `stopped after ${timeoutMs / 1000} s`
    const advice = 'a command that takes long belongs in the background'
    timer = setTimeout(stop, timeoutMs, `(${limit}: ${advice})`)
    abort = () => stop('(stopped: the run was stopped)')
    if (signal?.aborted) abort()
    signal?.addEventListener('abort', abort, { once: true })
    child.once('exit', doneSoon).once('close', done)
  })

  clearTimeout(timer)
  signal?.removeEventListener('abort', abort)
  child.removeAllListeners().unref()
  // A server left behind may go on printing: that is read and dropped, so that its pipe
  // neither fills nor breaks, and does not keep this process alive.
  child.stdout.off('data', output.add).resume()
  ;(child.stdout as Socket).unref()
  for (const group of groups) if (!isAlive(group)) groups.delete(group)

  const code = child.exitCode ? `(exit code ${child.exitCode})` : ''
  const ending = early || (child.signalCode ? `(killed by ${child.signalCode})` : code)
  const text = output.text()
  return text + (ending && text && !text.endsWith('\n') ? '\n' : '') + ending
}

/** The tool, ready for a list. */
export const bash: Tool = {
  name: 'bash',
  description: `Run a command with ${SHELL} in the working directory; cd is not kept.`,
  input_schema: {
    type: 'object',
    properties: { command: { type: 'string' } },
    required: ['command'],
  },
  run: runBash,
}

/** Kills, at once, all that was started and is still alive. */
export function stopAll(): void {
  for (const group of groups) killGroup(group)
  if (calls > 0) killMarked(RUN)
  groups.clear()
}
process.on('exit', stopAll)

/** The outer shell only joins stderr to stdout: one pipe keeps the order of both. */
function start(command: string, workdir: string, mark: string) {
  const options: SpawnOptionsWithStdioTuple<'ignore', 'pipe', 'ignore'> = {
    cwd: workdir,
    env: environment(workdir, mark),
    stdio: ['ignore', 'pipe', 'ignore'],
    detached: !windows, // a process group of its own, and no terminal to ask
    windowsHide: true,
    windowsVerbatimArguments: true,
  }
  try {
    if (!windows) {
      const merged = 'exec "$0" -c -- "$1" "$2" 2>&1'
      return spawn(shell, ['-c', merged, shell, command, SHELL], options)
    }
    // `!…!` is put in after parsing: no quote or & of the command means anything there.
    options.env = { ...options.env, AGENT_COMMAND: `"${command}"` }
    const merged = '"cmd /d /v:off /s /c !AGENT_COMMAND! 2>&1"'
    return spawn(shell, ['/d', '/v:on', '/s', '/c', merged], options)
  } catch (error) {
    throw cannotStart(error as NodeJS.ErrnoException)
  }
}

function cannotStart(cause: NodeJS.ErrnoException): Error {
  const tooLong = cause.code === 'E2BIG' || cause.code === 'ENAMETOOLONG'
  const why = tooLong ? 'the command is too long, write it to a file' : cause.message
  return new Error(`${SHELL} cannot start: ${why}`, { cause })
}

const NOISE = new RegExp(
  '^(node_(?!extra_ca)|npm_|init_cwd$|git_|no_color$|force_color$|clicolor|columns$|' +
    'lines$|lc_|lang(uage)?$|bash_|env$|shellopts$|bashopts$|cdpath$)',
  'i',
)

/**
 * This process's environment without secrets, without what its own launch left there
 * (npm, Node), and with what makes output alike on every machine: UTC, and a locale that
 * is UTF-8 but has no language or sorting of its own.
 */
function environment(workdir: string, mark: string): NodeJS.ProcessEnv {
  const kept = Object.entries(process.env).filter(
    ([name]) => !isSecretName(name) && !/^anthropic_/i.test(name) && !NOISE.test(name),
  )
  return {
    ...Object.fromEntries(kept),
    TZ: 'UTC',
    LC_ALL: process.platform === 'darwin' ? 'en_US.UTF-8' : 'C.UTF-8',
    // Else git would find the repository that the working directory happens to lie in.
    GIT_CEILING_DIRECTORIES: dirname(fs.realpathSync(workdir)),
    // What runs inside a command of an outer run is that run's, too.
    AGENT_RUN: `${process.env.AGENT_RUN ?? ''} ${mark}`,
  }
}

function isAlive(group: number): boolean {
  try {
    return process.kill(windows ? group : -group, 0)
  } catch {
    return false
  }
}

/** On Windows, what has outlived its parent cannot be found any more, and stays. */
function killGroup(group: number): void {
  try {
    if (!windows) process.kill(-group, 'SIGKILL')
    else spawnSync('taskkill', ['/t', '/f', '/pid', `${group}`], { windowsHide: true })
  } catch {
    // It has just ended by itself.
  }
}

/** Finds what left its group, as `setsid` does; only Linux lets one look for it. */
function killMarked(mark: string): void {
  if (process.platform !== 'linux') return
  for (let round = 0, found = true; found && round < 20; round++) {
    found = false
    for (const pid of fs.readdirSync('/proc').filter((name) => /^\d+$/.test(name))) {
      try {
        if (!fs.readFileSync(`/proc/${pid}/environ`, 'latin1').includes(mark)) continue
        found = process.kill(Number(pid), 'SIGKILL')
      } catch {
        // Another user's process, or one that has just ended.
      }
    }
  }
}

/** Keeps the two ends of an output, so that memory does not grow with it. */
function collect() {
  let [head, tail, total] = [Buffer.alloc(0), Buffer.alloc(0), 0]
  const inside = (byte: number) => (byte & 0xc0) === 0x80 // not a character's first byte
  return {
    add(chunk: Buffer) {
      total += chunk.length
      const room = KEEP + 1 - head.length // one more shows if a character ends there
      if (room > 0) head = Buffer.concat([head, chunk.subarray(0, room)])
      const rest = chunk.subarray(room).subarray(-KEEP)
      if (rest.length > 0) tail = Buffer.concat([tail, rest]).subarray(-KEEP)
    },
    text() {
      if (total === head.length + tail.length) return decode(Buffer.concat([head, tail]))
      let [end, begin] = [KEEP, 0]
      while (end > KEEP - 3 && inside(head[end])) end--
      while (begin < 3 && inside(tail[begin])) begin++
      const gap = `\n[left out: ${total - end - (tail.length - begin)} bytes]\n`
      return decode(head.subarray(0, end)) + gap + decode(tail.subarray(begin))
    },
  }
}

/** UTF-8, or else what a Windows console uses; what is neither becomes U+FFFD. */
export function decode(bytes: Buffer, codePage = consoleCodePage): string {
  const page = isUtf8(bytes) ? 65001 : codePage()
  const names: Record<number, string> = { 932: 'shift_jis', 936: 'gbk', 950: 'big5' }
  if (page === 65001) return bytes.toString()
  const alike = /^(874|949|125\d)$/.test(`${page}`) ? `windows-${page}` : 'latin1'
  return new TextDecoder(names[page] ?? alike).decode(bytes)
}

function consoleCodePage(): number {
  if (!windows) return 65001
  const { stdout } = spawnSync(shell, ['/d', '/c', 'chcp'], { windowsHide: true })
  return Number(/\d+/.exec(String(stdout))?.[0])
}

function findBash(): string | undefined {
  const folders = `${process.env.PATH}:/bin:/usr/bin`.split(':')
  return folders
    .map((folder) => join(folder, 'bash'))
    .find((file) => {
      try {
        fs.accessSync(file, fs.constants.X_OK)
        return file.startsWith('/')
      } catch {
        return false
      }
    })
}
