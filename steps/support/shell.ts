/** The body of bash: one command, what it printed and how it ended. Not a sandbox. */
import { isUtf8 } from 'node:buffer'
import { type SpawnOptionsWithStdioTuple, spawn, spawnSync } from 'node:child_process'
import { randomUUID } from 'node:crypto'
import {
  accessSync,
  constants,
  readdirSync,
  readFileSync,
  realpathSync,
  statSync,
} from 'node:fs'
import type { Socket } from 'node:net'
import { dirname, join } from 'node:path'
import type { ToolContext, ToolInput } from './tools.ts'

export const TIMEOUT_MS = 120_000
/** How long an ended command's output is awaited while something else holds its pipe. */
const GRACE_MS = 150
/** So many bytes are kept of an output's beginning, and as many of its end. */
const KEEP = 15_000

const windows = process.platform === 'win32'
const shell = windows ? (process.env.ComSpec ?? 'cmd.exe') : (findBash() ?? 'sh')
/** The shell's name, for the tool's description. */
export const SHELL = windows ? 'cmd.exe' : shell === 'sh' ? 'sh' : 'bash'

/** A word in the environment of all that this run starts, by which it is found again. */
const RUN = randomUUID()
/** Process groups, by the id of the shell that led them, with members still alive. */
const groups = new Set<number>()
let calls = 0

/**
 * Runs `command` in `workdir` and returns stdout and stderr as they came, with a last line
 * on how it ended unless that was well. What it leaves in the background goes on until
 * the run ends.
 *
 * @throws {Error} if there is nothing to run it with, or in
 */
export async function bash(
  { command }: ToolInput,
  { workdir, timeoutMs = TIMEOUT_MS }: ToolContext & { timeoutMs?: number },
): Promise<string> {
  if (command.includes('\0')) throw new Error('command has a NUL character: leave it out')
  if (!statSync(workdir, { throwIfNoEntry: false })?.isDirectory()) {
    throw new Error(`The working directory ${workdir} is gone`)
  }
  const mark = `${RUN}.${++calls}.`
  const child = start(command, workdir, mark)
  const output = collect()
  return new Promise((resolve, reject) => {
    child.once('error', (cause) => {
      reject(new Error(`${SHELL} cannot start: ${cause.message}`, { cause }))
    })
    const { pid } = child
    if (pid === undefined) return
    groups.add(pid)
    let early = ''
    let grace: NodeJS.Timeout | undefined

    const finish = () => {
      clearTimeout(limit)
      clearTimeout(grace)
      child.off('close', finish)
      // A server left behind may go on writing: that is read and dropped, so it does not
      // fail, but holds nothing up.
      child.stdout.off('data', output.add).resume()
      ;(child.stdout as Socket).unref()
      child.unref()
      for (const group of groups) if (!isAlive(group)) groups.delete(group)
      const code = child.exitCode ? `(exit code ${child.exitCode})` : ''
      const status =
        early || (child.signalCode ? `(killed by ${child.signalCode})` : code)
      const text = output.text()
      resolve(
        status && text && !text.endsWith('\n') ? `${text}\n${status}` : text + status,
      )
    }
    // What was written before the timer is due is read before `setImmediate` comes.
    const finishSoon = () => {
      grace ??= setTimeout(() => setImmediate(finish), GRACE_MS)
    }
    const stop = (reason: string) => {
      early = reason
      killTree(pid, mark)
      finishSoon()
    }
    const limit = setTimeout(
      stop,
      timeoutMs,
      `(stopped after ${timeoutMs / 1000} s: what runs longer belongs in the background)`,
    )
    child.stdout.on('data', output.add)
    child.once('exit', finishSoon).once('close', finish)
  })
}

/** Kills all that was started and is still alive, at once. */
export function stopAll(): void {
  for (const group of groups) killTree(group, RUN)
  if (calls > 0) killMarked(RUN)
  groups.clear()
}
process.on('exit', stopAll)

/** The outer shell only makes stderr the same pipe as stdout, which keeps their order. */
function start(command: string, workdir: string, mark: string) {
  const options: SpawnOptionsWithStdioTuple<'ignore', 'pipe', 'ignore'> = {
    cwd: workdir,
    env: environment(workdir, mark),
    stdio: ['ignore', 'pipe', 'ignore'],
    detached: !windows, // a group of its own, without a terminal to ask
    windowsHide: true,
    windowsVerbatimArguments: true,
  }
  if (windows) {
    // A delayed variable is put in after parsing: no quote or & in it can break out.
    options.env = { ...options.env, AGENT_COMMAND: `"${command}"` }
    const both = '"cmd /d /v:off /s /c !AGENT_COMMAND! 2>&1"'
    return spawn(shell, ['/d', '/v:on', '/s', '/c', both], options)
  }
  const both = 'exec "$0" -c -- "$1" "$2" 2>&1'
  return spawn(shell, ['-c', both, shell, command, SHELL], options)
}

const SECRET =
  /keys?(_|$)|secret|token|passw|passphrase|pass$|_pwd$|_pat$|credential|cookie|^anthropic_|(^|_)auth(_|$)/i
const NOISE =
  /^(node_(?!extra_ca)|npm_|git_|init_cwd$|no_color$|force_color$|clicolor|columns$|lines$|lc_|lang|bash_|env$|shellopts$|bashopts$|cdpath$)/i

/**
 * The environment without secrets, without what this program's own launch left there, and
 * with language and time zone set: a command prints the same on every machine, and UTF-8.
 */
function environment(workdir: string, mark: string): NodeJS.ProcessEnv {
  const kept = Object.entries(process.env).filter(
    ([name]) => !NOISE.test(name) && (!SECRET.test(name) || name === 'SSH_AUTH_SOCK'),
  )
  return {
    ...Object.fromEntries(kept),
    TZ: 'UTC',
    LC_ALL: process.platform === 'darwin' ? 'en_US.UTF-8' : 'C.UTF-8',
    // Else git would find the repository that the working directory happens to lie in.
    GIT_CEILING_DIRECTORIES: dirname(realpathSync(workdir)),
    AGENT_RUN: `${process.env.AGENT_RUN ?? ''} ${mark}`, // also that of an outer run
  }
}

function isAlive(group: number): boolean {
  try {
    return process.kill(windows ? group : -group, 0)
  } catch {
    return false
  }
}

/** On Windows, what outlives its parent has no tie to it any more and is not found. */
function killTree(group: number, mark: string): void {
  if (windows) {
    spawnSync('taskkill', ['/t', '/f', '/pid', `${group}`], { windowsHide: true })
    return
  }
  try {
    process.kill(-group, 'SIGKILL')
  } catch {
    // It has just ended by itself.
  }
  killMarked(mark)
}

/** Finds what left its group, as `setsid` does; only Linux lets one look for it. */
function killMarked(mark: string): void {
  if (process.platform !== 'linux') return
  for (let round = 0, found = true; found && round < 20; round++) {
    found = false
    for (const pid of readdirSync('/proc').filter((name) => /^\d+$/.test(name))) {
      try {
        if (!readFileSync(`/proc/${pid}/environ`, 'latin1').includes(mark)) continue
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
      const room = KEEP + 1 - head.length // one more, to see whether a character ends there
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

/** UTF-8, or what a Windows console uses; what is neither becomes U+FFFD. */
export function decode(bytes: Buffer, codePage = consoleCodePage): string {
  if (isUtf8(bytes)) return bytes.toString()
  const page = codePage()
  const names: Record<number, string> = { 932: 'shift_jis', 936: 'gbk', 950: 'big5' }
  if (page === 65001) names[page] = 'utf-8'
  const name =
    names[page] ?? (/^(874|949|125\d)$/.test(`${page}`) ? `windows-${page}` : 'latin1')
  return new TextDecoder(name, { ignoreBOM: true }).decode(bytes)
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
        accessSync(file, constants.X_OK)
        return file.startsWith('/')
      } catch {
        return false
      }
    })
}
