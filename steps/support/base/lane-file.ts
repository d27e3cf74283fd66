/** Reads a lane's file back: what the lane ran with, its messages, its events. */
import { existsSync, readdirSync, readFileSync } from 'node:fs'
import { join, parse } from 'node:path'
import type {
  MessageParam,
  ToolUseBlockParam,
  Usage,
} from '@anthropic-ai/sdk/resources/messages'

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

/** `header` is line 1, `lines` all others in order, `messages` those an API accepts. */
export type LaneFile = {
  name: string
  // biome-ignore lint/suspicious/noExplicitAny: what stands in a file is whatever it is
  header: Record<string, any>
  lines: LaneLine[]
  messages: MessageParam[]
}

/** Events that stand for a request which got no reply. */
export const REQUEST_EVENTS = ['api_error', 'bad_reply', 'no_connection', 'no_answer']

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
  const messages = lines.filter(isMessage).map(({ role, content }) => ({ role, content }))
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
 * Reads a run's folder: the parent first, then sub-1, sub-2, … sub-10.
 *
 * @throws {Error} naming the folder if it does not exist or holds no `parent.log`
 */
export function readFolder(folder: string): LaneFile[] {
  if (!existsSync(folder)) throw new Error(`There is no folder ${folder}.`)
  if (!existsSync(join(folder, 'parent.log'))) {
    throw new Error(`${folder} holds no parent.log: it is not the log of a run.`)
  }
  const numbers = readdirSync(folder).flatMap(
    (name) => /^sub-(\d+)\.log$/.exec(name)?.[1] ?? [],
  )
  const subs = numbers.sort((a, b) => Number(a) - Number(b)).map((n) => `sub-${n}`)
  return ['parent', ...subs].map((name) => readLane(join(folder, `${name}.log`)))
}

/**
 * The size of each request of a lane, in bytes of JSON: system prompt, tools and all
 * messages before it. Each reply was one request, and so was each call that failed.
 */
export function requestSizes({ header, lines }: LaneFile): number[] {
  const bytes = (value: unknown) => Buffer.byteLength(JSON.stringify(value) ?? '')
  const sizes: number[] = []
  let size = bytes(header.system) + bytes(header.tools)
  for (const { role, content, event } of lines) {
    if (role === 'assistant' || REQUEST_EVENTS.includes(event ?? '')) sizes.push(size)
    if (role) size += bytes({ role, content })
  }
  return sizes
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
