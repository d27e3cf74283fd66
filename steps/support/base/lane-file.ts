/** Reads a lane's file back: what the lane ran with, its messages, its events. */
import { existsSync, readdirSync, readFileSync } from 'node:fs'
import { join, parse } from 'node:path'
import type { MessageParam, Usage } from '@anthropic-ai/sdk/resources/messages'
import type { Json } from './protocol.ts'

/** Line 1 of a lane's file: what the lane ran with. */
export type LaneHeader = {
  step: string
  lane: string
  mode: 'live' | 'offline'
  model: string
  note?: string
  agent?: string
  worktree?: string
  workdir?: string // live: tells one directory from another, without its path
  system: string
  tools: { name: string; description: string; input_schema: object }[]
  max_turns?: number
}

/** A message (`role`, `content`), or what happened beside the messages (`event`). */
export type LaneLine = Json & {
  role?: 'user' | 'assistant'
  content?: MessageParam['content']
  stop_reason?: string | null
  usage?: Partial<Usage>
  event?: string
}

/** `header` is line 1, `lines` all others, `messages` the history that they come to. */
export type LaneFile = {
  name: string
  header: Json
  lines: LaneLine[]
  messages: MessageParam[]
}

/** Events that stand for a request which got no reply. */
const NO_REPLY = /^(api_error|bad_reply|empty_reply|no_connection|no_answer)$/

/** Whether a line ends a request: a reply, or what came instead of one. */
export const isAnswer = ({ role, stop_reason, event = '' }: LaneLine) =>
  // What a lane held when it was opened is a copy, and has no stop_reason.
  (role === 'assistant' && stop_reason !== undefined) || NO_REPLY.test(event)

/**
 * Reads one lane; its name is the file's, without `.log`.
 *
 * @throws {Error} naming file and line, where a line is not JSON (a torn last one too),
 * the first is no header, or another one is neither message nor event
 */
export function readLane(path: string): LaneFile {
  const { name, base } = parse(path) // what is wrong may be logged: no path of a machine
  const text = readFileSync(path, 'utf8').replace(/^\uFEFF|(\r?\n)+$/g, '')
  if (text === '') throw new Error(`${base} is empty.`)
  const [header, ...lines] = text.split('\n').map((line, i) => {
    const at = `${base}, line ${i + 1}`
    const value = parseJson(line) as LaneLine | undefined
    if (value === undefined) throw new Error(`${at} is not JSON.`)
    if (i === 0 && !Array.isArray(value?.tools))
      throw new Error(`${at} is no header: it has no tools.`)
    if (i === 0 || isMessage(value) || typeof value?.event === 'string') return value
    throw new Error(`${at} is neither a message (role, content) nor an event.`)
  })
  let messages: MessageParam[] = []
  for (const { after } of walk(lines, base)) messages = after
  return { name, header, lines, messages }
}

/** What a text holds as JSON, with no half characters in it; undefined if it is none. */
export function parseJson(text: string): unknown {
  try {
    const value = JSON.parse(text)
    const mayHaveHalves = /\\ud[89a-f]/i.test(text) // what is decoded has none but so
    return mayHaveHalves ? mapStrings(value, (string) => string.toWellFormed()) : value
  } catch {
    return undefined
  }
}

const isMessage = (line?: LaneLine) =>
  (line?.role === 'user' || line?.role === 'assistant') &&
  (typeof line.content === 'string' || Array.isArray(line.content)) &&
  line.event === undefined

/**
 * Goes through a lane: the history before and after each line. It grows by a message a
 * line, in one and the same array, until a `compacted` event: then the next message
 * stands for the messages that the event numbers (from 1, in the history as it was).
 *
 * @throws {Error} naming the line where these numbers fit no history
 */
export function* walk(lines: LaneLine[], file = 'A lane') {
  let history: MessageParam[] = []
  let replaced: number[] | undefined
  for (const [i, line] of lines.entries()) {
    const before = history
    const { length } = before
    if (isMessage(line)) {
      const message = { role: line.role, content: line.content } as MessageParam
      if (replaced) history = compact(before, replaced, message)
      else history.push(message)
      replaced = undefined
    }
    if (line.event === 'compacted') {
      replaced = line.replaced
      const isNumber = (n: number) => Number.isInteger(n) && n >= 1 && n <= length
      if (!replaced?.length || !replaced.every?.(isNumber)) {
        throw new Error(`${file}, line ${i + 2}: \`replaced\` does not fit the history.`)
      }
    }
    yield { line, before, length, after: history }
  }
}

/** A history in which the message `by` stands for those with the numbers `replaced`. */
export function compact(history: MessageParam[], replaced: number[], by: MessageParam) {
  const last = Math.max(...replaced)
  const isGone = (n: number) => n !== last && replaced.includes(n)
  return history.with(last - 1, by).filter((_, i) => !isGone(i + 1))
}

/**
 * Reads a run's folder: the parent first, then the others by name.
 *
 * @throws {Error} naming the folder if it does not exist or holds no `parent.log`
 */
export function readFolder(folder: string): LaneFile[] {
  if (!existsSync(folder)) throw new Error(`There is no folder ${folder}.`)
  const names = lanesIn(folder)
  if (names[0] !== 'parent') {
    throw new Error(`${folder} holds no parent.log: it is not the log of a run.`)
  }
  return names.map((name) => readLane(join(folder, `${name}.log`)))
}

/** The lanes with a file in a folder: parent, sub-1, sub-1.summary-1, sub-2, … sub-10. */
export function lanesIn(folder: string): string[] {
  const files = existsSync(folder) ? readdirSync(folder) : []
  const names = files.flatMap((name) => /^(.+)\.log$/.exec(name)?.[1] ?? [])
  const key = (name: string) => name.replace(/\d+/g, (digits) => digits.padStart(9, '0'))
  const rank = (name: string) => (name === 'parent' ? '' : key(name))
  return names.sort((a, b) => (rank(a) < rank(b) ? -1 : 1))
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

/** What replies took, cached tokens too, and what they held, as an API counted them. */
export function tokensIn(usages: (Partial<Usage> | undefined)[]) {
  const counts = usages.flatMap((usage) => Object.entries(usage ?? {}))
  const sum = (field: RegExp) =>
    counts.reduce((all, [name, count]) => all + (field.test(name) ? Number(count) : 0), 0)
  return { input: sum(/^(cache_\w+_)?input_tokens$/), output: sum(/^output_tokens$/) }
}

/** Bytes of JSON, all values together. */
export function sizeOf(values: unknown[]): number {
  const bytes = values.map((value) => Buffer.byteLength(JSON.stringify(value) ?? ''))
  return bytes.reduce((a, b) => a + b, 0)
}

/** A call in one line: the tool, and of its input the field that tells most. */
export function callLine({ name, input }: { name: string; input: unknown }): string {
  const { path, command, description, prompt } = Object(input)
  const field = [path, command, description, prompt].find((value) => value?.trim?.())
  return `${name} ${field ?? JSON.stringify(input)}`.replace(/\s+/g, ' ').trim()
}

/** `value` with `change` applied to every string in it, keys of objects included. */
export function mapStrings<T>(value: T, change: (text: string) => string): T {
  if (typeof value === 'string') return change(value) as T
  if (Array.isArray(value)) return value.map((item) => mapStrings(item, change)) as T
  if (value === null || typeof value !== 'object') return value
  const entries = Object.entries(value)
  const changed = entries.map(([key, one]) => [change(key), mapStrings(one, change)])
  return Object.fromEntries(changed)
}

/** Renumbers tool ids in order of appearance, so that they are the same in every run. */
export function renumberIds(ids = new Map<string, string>()): <T>(content: T) => T {
  const short = (id: string) => {
    if (!ids.has(id)) ids.set(id, `tool_${ids.size + 1}`)
    return ids.get(id)
  }
  const renumber = (block: LaneLine) => ({
    ...block,
    ...(block.type === 'tool_use' && { id: short(block.id) }),
    ...(block.type === 'tool_result' && { tool_use_id: short(block.tool_use_id) }),
  })
  return <T>(content: T) =>
    Array.isArray(content) ? (content.map(renumber) as T) : content
}
