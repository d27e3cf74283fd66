/** The writer of a lane's file: the pino set-up, and what makes two files comparable. */
import { realpathSync } from 'node:fs'
import { pathToFileURL } from 'node:url'
import type { Message, MessageParam } from '@anthropic-ai/sdk/resources/messages'
import pino from 'pino'

/** Line 1 of a lane's file: what the lane ran with. */
export type LaneHeader = {
  step: string
  lane: string
  mode: 'live' | 'offline'
  model: string
  note?: string
  /** The profile's name, from step 09 on. */
  agent?: string
  /** The branch of the child's own worktree. */
  worktree?: string
  /** Live: tells one working directory from another, without its path. */
  workdir?: string
  system: string
  tools: { name: string; description: string }[]
  max_turns?: number
}

export type Lane = {
  name: string
  /** One line per message; the reply adds why it stopped and, live, what it cost. */
  message: (message: MessageParam, reply?: Pick<Message, 'stop_reason' | 'usage'>) => void
  /** A line that is no message, such as a request that got no reply. */
  event: (level: 'info' | 'warn' | 'error', event: string, fields?: object) => void
  /** Messages so far, and tokens in and out as an API gave them, since it was opened. */
  sums: { messages: number; input: number; output: number }
  /** Tokens of this run before it was opened again. */
  earlier: { input: number; output: number }
}

const secrets: string[] = []

/** From now on these values are replaced wherever they would be shown or stored. */
export function hide(values: string[]): void {
  secrets.push(...values)
  secrets.sort((a, b) => b.length - a.length)
}

/** Text without the values given to `hide`. */
export function redact(text: string): string {
  return secrets.reduce((out, secret) => out.replaceAll(secret, '[redacted]'), text)
}

/** `value` with `change` applied to every string in it, keys of objects included. */
export function mapStrings<T>(value: T, change: (text: string) => string): T {
  if (typeof value === 'string') return change(value) as T
  if (Array.isArray(value)) return value.map((item) => mapStrings(item, change)) as T
  if (value === null || typeof value !== 'object') return value
  const entries = Object.entries(value)
  return Object.fromEntries(
    entries.map(([k, v]) => [change(k), mapStrings(v, change)]),
  ) as T
}

/** Writes the working directory as `<workdir>`, however a tool may spell it. */
export function foldPath(workdir: string): (text: string) => string {
  const paths = [workdir, realpathSync(workdir)]
  const urls = paths.map((path) => pathToFileURL(path).href)
  const slashes = paths.flatMap((path) => [
    path.replaceAll('\\', '/'),
    JSON.stringify(path),
  ])
  const spellings = [
    ...urls,
    ...paths,
    ...slashes.map((text) => text.replaceAll('"', '')),
  ]
  const unique = [...new Set(spellings)].sort((a, b) => b.length - a.length)
  const pattern = unique
    .map((path) => path.replace(/[\\^$.*+?()[\]{}|]/g, '\\$&'))
    .join('|')
  // A sibling whose name only begins the same is another folder.
  const regex = new RegExp(`(?:${pattern})(?![\\w-]|\\.\\w)`, 'g')
  return (text) => text.replace(regex, '<workdir>')
}

/** Renumbers tool ids in order of appearance, so that they are the same in every run. */
export function renumberIds(): <T>(content: T) => T {
  const ids = new Map<string, string>()
  const short = (id: string) => {
    if (!ids.has(id)) ids.set(id, `tool_${ids.size + 1}`)
    return ids.get(id)
  }
  return <T>(content: T) => {
    if (!Array.isArray(content)) return content
    return content.map((block) => {
      const { type, id, tool_use_id } = block
      if (type === 'tool_use') return { ...block, id: short(id) }
      return type === 'tool_result'
        ? { ...block, tool_use_id: short(tool_use_id) }
        : block
    }) as T
  }
}

type LaneOptions = {
  fold: (text: string) => string
  /** Told the first line that could not be written; no more are tried. */
  failed: (error: Error) => void
  /** What the file holds already; else it gets its first line. */
  history?: MessageParam[]
  /** The lane as it was before in this run. */
  before?: Lane
}

/**
 * Opens a lane's file, if there is a path. Every line is written before a call returns,
 * so that a run killed at any moment leaves all that it finished.
 */
export function openLane(
  path: string | undefined,
  header: LaneHeader,
  { fold, failed, history, before }: LaneOptions,
): Lane {
  let log: pino.Logger | undefined
  const attempt = (write: () => void) => {
    try {
      write()
    } catch (error) {
      log = undefined
      failed(error as Error)
    }
  }
  attempt(() => {
    if (path === undefined) return
    const destination = pino.destination({ dest: path, sync: true, mkdir: true })
    const level = (label: string) => ({ level: label })
    log = pino({ base: null, timestamp: false, formatters: { level } }, destination)
  })
  const clean = <T>(value: T) => mapStrings(value, (text) => redact(fold(text)))
  const renumber = renumberIds()
  const first = clean(header)
  const sums = { messages: 0, input: 0, output: 0 }
  const add = ({ role, content }: MessageParam) => {
    sums.messages += 1
    return { role, content: clean(renumber(content)) }
  }
  if (history) history.forEach(add)
  else attempt(() => log?.info(first))
  return {
    name: header.lane,
    sums,
    earlier: {
      input: (before?.sums.input ?? 0) + (before?.earlier.input ?? 0),
      output: (before?.sums.output ?? 0) + (before?.earlier.output ?? 0),
    },
    message(message, reply) {
      sums.input += reply?.usage.input_tokens ?? 0
      sums.output += reply?.usage.output_tokens ?? 0
      const usage = header.mode === 'live' ? reply?.usage : undefined
      const stop = reply && { stop_reason: reply.stop_reason, ...(usage && { usage }) }
      const line = { ...add(message), ...stop }
      attempt(() => log?.info(line))
    },
    event(level, event, fields) {
      attempt(() => log?.[level]({ event, ...clean(fields) }))
    },
  }
}
