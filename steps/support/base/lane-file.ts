/** Reads a lane's file back: what the lane ran with, its messages, its events. */
import { existsSync, readdirSync, readFileSync } from 'node:fs'
import { join, parse } from 'node:path'
import type {
  Message,
  MessageParam,
  ToolUseBlockParam,
  Usage,
} from '@anthropic-ai/sdk/resources/messages'

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

/** The writer of a lane's file. */
export type Lane = {
  name: string
  header: LaneHeader
  /** One line per message; the reply adds why it stopped and, live, what it cost. */
  message: (message: MessageParam, reply?: Pick<Message, 'stop_reason' | 'usage'>) => void
  /** A line that is no message, such as a request that got no reply. */
  event: (level: 'info' | 'warn' | 'error', event: string, fields?: object) => void
  /** Messages so far, and tokens in and out as an API gave them, since it was opened. */
  sums: { messages: number; turns: number; input: number; output: number }
  /** Tokens of this run before it was opened again. */
  earlier: { input: number; output: number }
}

/** A message (`role`, `content`), or what happened beside the messages (`event`). */
export type LaneLine = {
  role?: 'user' | 'assistant'
  content?: MessageParam['content']
  stop_reason?: string | null
  usage?: Partial<Usage>
  event?: string
  // biome-ignore lint/suspicious/noExplicitAny: each event has its own fields
  [field: string]: any
}

/** `header` is line 1, `lines` all others, `messages` the history that they come to. */
export type LaneFile = {
  name: string
  // biome-ignore lint/suspicious/noExplicitAny: what stands in a file is whatever it is
  header: Record<string, any>
  lines: LaneLine[]
  messages: MessageParam[]
}

/** Events that stand for a request which got no reply. */
export const REQUEST_EVENTS = [
  'api_error',
  'bad_reply',
  'empty_reply',
  'no_connection',
  'no_answer',
]

/** Whether a line ends a request: a reply, or what came instead of one. */
export const isAnswer = ({ role, stop_reason, event = '' }: LaneLine) =>
  // What a lane held when it was opened is a copy, and has no stop_reason.
  (role === 'assistant' && stop_reason !== undefined) || REQUEST_EVENTS.includes(event)

/**
 * Reads one lane; its name is the file's, without `.log`.
 *
 * @throws {Error} naming file and line, where a line is not JSON (a torn last one too),
 * the first is no header, or another one is neither message nor event
 */
export function readLane(path: string): LaneFile {
  const text = readFileSync(path, 'utf8').replace(/^\uFEFF|(\r?\n)+$/g, '')
  if (text === '') throw new Error(`${path} is empty.`)
  const [header, ...lines] = text.split('\n').map((line, i) => {
    const at = `${path}, line ${i + 1}`
    const value = parseLine(line, at)
    if (i === 0 && !isHeader(value)) throw new Error(`${at} is no header (lane, tools).`)
    if (i === 0 || isMessage(value) || typeof value?.event === 'string') return value
    throw new Error(`${at} is neither a message (role, content) nor an event.`)
  })
  let messages: MessageParam[] = []
  for (const { after } of walk(lines)) messages = after
  return { name: parse(path).name, header, lines, messages }
}

function parseLine(line: string, at: string) {
  try {
    return JSON.parse(line)
  } catch (error) {
    throw new Error(`${at} is not JSON: ${(error as Error).message}`)
  }
}

const isHeader = (value?: LaneLine) =>
  typeof value?.lane === 'string' && Array.isArray(value.tools) && !value.role

const isMessage = (line?: LaneLine) =>
  (line?.role === 'user' || line?.role === 'assistant') &&
  (typeof line.content === 'string' || Array.isArray(line.content)) &&
  line.event === undefined

/**
 * Goes through a lane: the history before and after each line. It grows by a message a
 * line, in one and the same array, until a `compacted` event: then the next message
 * stands for the messages that the event numbers (from 1, in the history as it was).
 */
export function* walk(lines: LaneLine[]) {
  let history: MessageParam[] = []
  let replaced: number[] | undefined
  for (const line of lines) {
    const before = history
    const { length } = before
    if (isMessage(line)) {
      const message = { role: line.role, content: line.content } as MessageParam
      if (replaced) history = compact(history, replaced, message)
      else history.push(message)
      replaced = undefined
    }
    if (line.event === 'compacted') replaced = line.replaced
    yield { line, before, length, after: history }
  }
}

/** A history in which `message` stands for the messages with the numbers `replaced`. */
export function compact(
  history: MessageParam[],
  replaced: number[],
  message: MessageParam,
): MessageParam[] {
  const last = Math.max(...replaced)
  const kept = history.slice(0, last).filter((_, i) => !replaced.includes(i + 1))
  return [...kept, message, ...history.slice(last)]
}

/**
 * Reads a run's folder: the parent first, then sub-1, sub-2, … sub-10.
 *
 * @throws {Error} naming the folder if it does not exist or holds no `parent.log`
 */
export function readFolder(folder: string): LaneFile[] {
  if (!existsSync(folder)) throw new Error(`There is no folder ${folder}.`)
  if (!existsSync(join(folder, 'parent.log'))) {
    throw new Error(`${folder} holds no parent.log: it is not the log of a run.`)
  }
  const names = readdirSync(folder)
    .filter((name) => name.endsWith('.log'))
    .map((name) => name.slice(0, -4))
  const order = new Intl.Collator('en', { numeric: true }).compare
  const others = names.filter((name) => name !== 'parent').sort(order)
  return ['parent', ...others].map((name) => readLane(join(folder, `${name}.log`)))
}

/**
 * The size of each request of a lane, in bytes of JSON: system prompt, tools and all
 * messages before it. Each reply was one request, and so was each call that failed.
 */
export function requestSizes({ header, lines }: LaneFile): number[] {
  const fixed = sizeOf([header.system, header.tools])
  const sizes: number[] = []
  let history = 0
  for (const { line, before, after } of walk(lines)) {
    if (isAnswer(line)) sizes.push(fixed + history)
    if (after !== before) history = sizeOf(after)
    else if (line.role) history += sizeOf(after.slice(-1))
  }
  return sizes
}

/** Bytes of JSON, all values together. */
export function sizeOf(values: unknown[]): number {
  const bytes = values.map((value) => Buffer.byteLength(JSON.stringify(value) ?? ''))
  return bytes.reduce((a, b) => a + b, 0)
}

/** A call in one line: the tool, and of its input the field that tells most. */
export function callLine({
  name,
  input,
}: Pick<ToolUseBlockParam, 'name' | 'input'>): string {
  const fields = Object(input)
  const telling = ['path', 'command', 'description', 'prompt'].map((key) => fields[key])
  const field = telling.find((value) => typeof value === 'string' && value.trim())
  return `${name} ${field ?? JSON.stringify(input)}`.replace(/\s+/g, ' ').trim()
}

/** The lanes of the children that have a log in this folder. */
export function childrenIn(folder: string): string[] {
  const files = existsSync(folder) ? readdirSync(folder) : []
  return files
    .filter((name) => /^sub-\d+\.log$/.test(name))
    .map((name) => name.slice(0, -4))
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
