/** bash: one command, what it printed and how it ended. Not a sandbox. */
import { isUtf8 } from 'node:buffer'
import { type SpawnOptionsWithStdioTuple, spawn, spawnSync } from 'node:child_process'
import { once } from 'node:events'
import { existsSync } from 'node:fs'
import type { Socket } from 'node:net'
import { dirname } from 'node:path'
import type Anthropic from '@anthropic-ai/sdk'
import { isSecretName } from '../base/secrets.ts'
import { rootOf } from './files.ts'
import type { Tool, ToolContext, ToolInput } from './tool.ts'
import { aroundMarker, texts } from './tool.ts'

export const TIMEOUT_MS = 120_000
const GRACE_MS = 150 // for an ended command's output, if something else holds its pipe
const KEEP = 15_000 // bytes of an output's beginning, and of its end

const windows = process.platform === 'win32'
const BASH = ['/bin/bash', '/usr/bin/bash', '/usr/local/bin/bash'].find(existsSync)
const shell = windows ? (process.env.ComSpec ?? 'cmd.exe') : (BASH ?? 'sh')
/** The shell's name, for the tool's description. */
export const SHELL = windows ? 'cmd.exe' : BASH ? 'bash' : 'sh'

/** Tools as line 1 of a lane holds them: without their code, alike on every machine. */
export function describeTools(tools: Anthropic.Tool[]) {
  const shell = new RegExp(`\\b${SHELL}(?!\\w)`, 'g')
  return tools.map(({ name, description = '', input_schema }) => {
    return { name, description: description.replace(shell, '<shell>'), input_schema }
  })
}

/** Process groups, by the id of the shell that led them, with members still alive. */
const groups = new Set<number>()

/**
 * Runs `command` in `workdir`. Returns stdout and stderr in the order they came, and in a
 * last line how it ended, unless with exit code 0. What it leaves in the background goes
 * on until the run ends; what leaves the process group (`setsid`) goes on after that.
 *
 * @throws {Error} if the shell cannot start or `workdir` is gone
 */
export async function runBash(
  { command }: ToolInput,
  { workdir, signal, timeoutMs = TIMEOUT_MS }: ToolContext & { timeoutMs?: number },
): Promise<string> {
  if (Buffer.byteLength(command) > 100_000) {
    throw new Error('command is too long: write it to a file and run that')
  }
  const child = start(command, rootOf(workdir))
  const { pid } = child
  if (pid === undefined) throw (await once(child, 'error'))[0]
  groups.add(pid)
  const output = collect()
  child.stdout.on('data', output.add)

  let stopped = ''
  const stop = (reason: string) => {
    stopped = reason
    send(pid, 'SIGKILL')
  }
  const why = `(stopped after ${timeoutMs / 1000} s: run long commands in the background)`
  const timer = setTimeout(stop, timeoutMs, why)
  const abort = () => stop('(stopped: the run was stopped)')
  if (signal?.aborted) abort()
  signal?.addEventListener('abort', abort)
  await new Promise<void>((done) => {
    // However late the timer is, what the pipe already holds is read before `done`.
    const doneSoon = () => setTimeout(() => setImmediate(done), GRACE_MS).unref()
    child.once('close', done).once('exit', doneSoon)
  })
  clearTimeout(timer)
  signal?.removeEventListener('abort', abort)
  // A server left behind may go on printing: that is read and dropped, so that its pipe
  // neither fills nor breaks, and does not keep this process alive.
  child.stdout.off('data', output.add).resume()
  ;(child.stdout as Socket).unref()
  for (const group of groups) if (!send(group, 0)) groups.delete(group)

  const code = child.exitCode ? `(exit code ${child.exitCode})` : ''
  const ending = stopped || (child.signalCode ? `(killed by ${child.signalCode})` : code)
  const text = output.text()
  return text + (ending && text && !text.endsWith('\n') ? '\n' : '') + ending
}

export const bash: Tool = {
  name: 'bash',
  description: `Run a command with ${SHELL} in the working directory; cd is not kept.`,
  input_schema: texts('command'),
  run: runBash,
}

/** Kills, at once, all that was started and is still alive. */
export function stopAll(): void {
  for (const group of groups) send(group, 'SIGKILL')
  groups.clear()
}
process.on('exit', stopAll)

/** The outer shell only joins stderr to stdout: one pipe keeps the order of both. */
function start(command: string, workdir: string) {
  const options: SpawnOptionsWithStdioTuple<'ignore', 'pipe', 'ignore'> = {
    cwd: workdir,
    env: environment(workdir),
    stdio: ['ignore', 'pipe', 'ignore'],
    detached: !windows, // a process group of its own, and no terminal to ask
    windowsHide: true,
    windowsVerbatimArguments: true,
  }
  if (!windows) {
    const merged = 'exec "$0" -c -- "$1" "$2" 2>&1'
    return spawn(shell, ['-c', merged, shell, command, SHELL], options)
  }
  // `!…!` is put in after parsing: no quote or & of the command means anything there.
  options.env = { ...options.env, AGENT_COMMAND: `"${command}"` }
  const merged = '"cmd /d /v:off /s /c !AGENT_COMMAND! 2>&1"'
  return spawn(shell, ['/d', '/v:on', '/s', '/c', merged], options)
}

const NOISE = new RegExp(
  '^(anthropic_|node_(?!extra_ca)|npm_|init_cwd$|git_|no_color$|force_color$|clicolor|' +
    'columns$|lines$|lc_|lang(uage)?$|bash_|env$|shellopts$|bashopts$|cdpath$)',
  'i',
)

/**
 * This process's environment without secrets, without what its own launch left there
 * (npm, Node), and with what makes output alike on every machine: UTC, and a locale that
 * is UTF-8 but has no language or sorting of its own.
 */
function environment(workdir: string): NodeJS.ProcessEnv {
  const kept = Object.entries(process.env).filter(
    ([name]) => !isSecretName(name) && !NOISE.test(name),
  )
  return {
    ...Object.fromEntries(kept),
    TZ: 'UTC',
    LC_ALL: process.platform === 'darwin' ? 'en_US.UTF-8' : 'C.UTF-8',
    // Else git would find the repository that the working directory happens to lie in.
    GIT_CEILING_DIRECTORIES: dirname(workdir),
  }
}

/**
 * Sends a signal to a process group; 0 only asks. False if nobody is left in it. On
 * Windows, what has outlived its parent cannot be found any more, and stays.
 */
function send(group: number, signal: 'SIGKILL' | 0): boolean {
  try {
    if (!windows || signal === 0) return process.kill(windows ? group : -group, signal)
    spawnSync('taskkill', ['/t', '/f', '/pid', `${group}`], { windowsHide: true })
    return true
  } catch {
    return false
  }
}

/** Keeps the two ends of an output, so that memory does not grow with it. */
function collect() {
  let [head, tail, total] = [Buffer.alloc(0), Buffer.alloc(0), 0]
  return {
    add(chunk: Buffer) {
      total += chunk.length
      const room = KEEP - head.length
      head = Buffer.concat([head, chunk.subarray(0, room)])
      tail = Buffer.concat([tail, chunk.subarray(room)]).subarray(-KEEP)
    },
    text() {
      if (total > 2 * KEEP) return aroundMarker([head, tail], total, decode)
      return decode(Buffer.concat([head, tail]))
    },
  }
}

/** UTF-8, or else what a Windows console uses; what is neither becomes U+FFFD. */
function decode(bytes: Buffer): string {
  if (!windows || isUtf8(bytes)) return bytes.toString()
  const { stdout } = spawnSync(shell, ['/d', '/c', 'chcp'], { windowsHide: true })
  return new TextDecoder(encodingOf(String(stdout))).decode(bytes)
}

/** The encoding of a console's code page, as `chcp` names it. */
export function encodingOf(said: string): string {
  const page = /\d+/.exec(said)?.[0] ?? ''
  const names: Record<string, string> = { 932: 'shift_jis', 936: 'gbk', 950: 'big5' }
  return names[page] ?? (/^(874|949|125\d)$/.test(page) ? `windows-${page}` : 'latin1')
}
