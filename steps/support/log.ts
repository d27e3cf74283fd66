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
  system: string
  tools: { name: string; description: string }[]
  max_turns?: number
}

export type Lane = {
  name: string
  /** One line per message; the reply adds why it stopped and, live, what it cost. */
  message: (message: MessageParam, reply?: Pick<Message, 'stop_reason' | 'usage'>) => void
  /** A line that is no message. `request`: it stands for a request that got no reply. */
  event: (level: 'warn' | 'error', event: string, fields?: object) => void
  /** Messages, bytes of the largest request, tokens in and out as the API gave them. */
  sums: { messages: number; largest: number; input: number; output: number }
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
export function renumberIds(): <T>(value: T) => T {
  const ids = new Map<string, string>()
  const short = (id: string) => {
    if (!ids.has(id)) ids.set(id, `tool_${ids.size + 1}`)
    return ids.get(id)
  }
  const renumber = <T>(content: T): T => {
    if (!Array.isArray(content)) return content
    return content.map((block) => {
      if (block.type === 'tool_use') return { ...block, id: short(block.id) }
      if (block.type === 'tool_result')
        return { ...block, tool_use_id: short(block.tool_use_id) }
      return block
    }) as T
  }
  return renumber
}

/**
 * Opens a lane's file, if it has a path, and writes its first line. Every line is written
 * before the call returns. The first that cannot be written is passed to `failed`, and no
 * more are tried.
 */
export function openLane(
  path: string | undefined,
  header: LaneHeader,
  fold: (text: string) => string,
  failed: (error: Error) => void,
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
  let size = bytes(first.system) + bytes(first.tools)
  const sums = { messages: 0, largest: 0, input: 0, output: 0 }
  attempt(() => log?.info(first))
  return {
    name: header.lane,
    sums,
    message({ role, content }, reply) {
      const message = { role, content: clean(renumber(content)) }
      const usage = header.mode === 'live' ? reply?.usage : undefined
      if (role === 'assistant') sums.largest = Math.max(sums.largest, size)
      size += bytes(message)
      sums.messages += 1
      sums.input += usage?.input_tokens ?? 0
      sums.output += usage?.output_tokens ?? 0
      const stop = reply && { stop_reason: reply.stop_reason, ...(usage && { usage }) }
      attempt(() => log?.info({ ...message, ...stop }))
    },
    event(level, event, fields) {
      sums.largest = Math.max(sums.largest, size)
      attempt(() => log?.[level]({ event, ...clean(fields) }))
    },
  }
}

const bytes = (value: unknown) => Buffer.byteLength(JSON.stringify(value))
