// Reading a lane's file, by the rules of steps/support: what is a message, what is a
// request, and how large each request was. Nothing here knows the page.

/** Events that stand for a request which got no reply. */
export const REQUEST_EVENTS = [
  'api_error',
  'bad_reply',
  'empty_reply',
  'no_answer',
  'no_connection',
]

/** Why a file is refused: a key of the words' `notices`, and what it names. */
export class Refusal extends Error {
  constructor(key, values) {
    super(key)
    this.notice = { key, values }
  }
}

/** A line that is neither message nor event: it is shown as what it is. */
export class Broken {
  constructor(row, number) {
    this.row = row
    this.number = number
  }
}

const encoder = new TextEncoder()
export const lengthOf = (text) => encoder.encode(text).length
const bytes = (value) => lengthOf(JSON.stringify(value) ?? '')
export const largest = (values) => values.reduce((a, b) => Math.max(a, b), 0)
export const total = (values) => values.reduce((a, b) => a + b, 0)

export function parseJson(text) {
  try {
    return JSON.parse(text)
  } catch {
    return undefined // the caller says what is wrong with it
  }
}

export const isHeader = (value) =>
  typeof value?.lane === 'string' && Array.isArray(value.tools) && !value.role
export const isMessage = (line) =>
  (line?.role === 'user' || line?.role === 'assistant') &&
  (typeof line.content === 'string' || Array.isArray(line.content)) &&
  line.event === undefined
export const isRequest = (line) =>
  // What a lane held when it was opened is a copy: it has no stop_reason.
  (line?.role === 'assistant' && line.stop_reason !== undefined) ||
  REQUEST_EVENTS.includes(line?.event)
export const isCall = (block) => block?.type === 'tool_use'
export const isResult = (block) => block?.type === 'tool_result'

/** Reads a lane; one whose first line is no header is refused. */
export function readLane(file, text) {
  const rows = text.replace(/^\uFEFF/, '').split('\n')
  const header = parseJson(rows[0])
  if (!isHeader(header)) throw new Refusal(text.trim() ? 'noHeader' : 'empty', { file })
  const lines = rows.flatMap((row, i) => {
    if (i === 0 || row.trim() === '') return []
    const line = parseJson(row)
    const isKnown = isMessage(line) || typeof line?.event === 'string'
    return isKnown ? line : new Broken(row, i + 1)
  })
  try {
    const name = brief(header.lane)
    return { name, header, lines, unit: 'bytes', ...measure(header, lines) }
  } catch (error) {
    throw new Refusal('cannotShow', { file, why: error.message })
  }
}

/**
 * What a lane's lines come to:
 *
 * - `parts[n]`: the bytes of the history after n lines, in the order of the words' `kinds`;
 * - `counts[n]`: how many message lines there are by then;
 * - `requests`: line and size of each request;
 * - `grown[n]`: the bytes of line n as a message;
 * - `leftOut`: for a line that a compaction replaced, the line of the message that now
 *   stands in its place;
 * - `callOf`: which tool_use a tool_result answers.
 */
export function measure(header, lines) {
  const system = header.system === undefined ? 0 : bytes(header.system)
  const tools = header.tools === undefined ? 0 : bytes(header.tools)
  let sizes = [system + tools, 0, 0, 0]
  let history = [] // the lines that the next request would hold
  let replaced = [] // of these, what the next message stands for
  const [parts, counts, requests, grown] = [[sizes], [0], [], []]
  const [open, callOf, leftOut] = [new Map(), new Map(), new Map()]
  for (const [index, line] of lines.entries()) {
    const blocks = blocksOf(line)
    if (isRequest(line)) requests.push({ index, size: total(sizes) })
    if (line.event === 'compacted') replaced = numbered(history, line.replaced)
    const kind = line.role === 'assistant' ? 2 : isResult(blocks[0]) ? 3 : 1
    const isCounted = isMessage(line)
    grown.push(isCounted ? bytes({ role: line.role, content: line.content }) : 0)
    if (isCounted) {
      sizes = sizes.with(kind, sizes[kind] + grown[index])
      for (const old of replaced) {
        leftOut.set(old.index, index)
        sizes = sizes.with(old.kind, sizes[old.kind] - grown[old.index])
      }
      history = insert(history, replaced, { index, kind })
      replaced = []
    }
    parts.push(sizes)
    counts.push(counts[index] + (isCounted ? 1 : 0))
    for (const block of blocks) {
      if (isCall(block)) open.set(block.id, block)
      if (isResult(block)) callOf.set(block, open.get(block.tool_use_id))
    }
  }
  return { parts, counts, requests, grown, leftOut, callOf }
}

/** Of a history, the messages with these numbers, counted from 1. */
function numbered(history, numbers) {
  const asked = new Set(Array.isArray(numbers) ? numbers : [])
  return history.filter((_, i) => asked.has(i + 1))
}

/** A message goes to the end, or to where the last one that it replaces stood. */
function insert(history, replaced, message) {
  if (replaced.length === 0) {
    history.push(message) // in place: a long lane would be copied once a line
    return history
  }
  const gone = new Set(replaced)
  const last = replaced.at(-1)
  return history.flatMap((old) => (old === last ? message : gone.has(old) ? [] : old))
}

/** A message's blocks; a string is short for a text. */
export function blocksOf(line) {
  if (!isMessage(line)) return []
  const blocks = Array.isArray(line.content) ? line.content : [line.content]
  return blocks.map((block) =>
    typeof block === 'string' ? { type: 'text', text: block } : Object(block),
  )
}

export const callsOf = (line) => blocksOf(line).filter(isCall)

/** The text of a user message that holds no tool results. */
export function promptOf(line) {
  const isPrompt = line?.role === 'user' && isMessage(line)
  return isPrompt && !isResult(blocksOf(line)[0]) ? textOf(line.content) : undefined
}

export function textOf(content = '') {
  if (!Array.isArray(content)) return asText(content)
  return content.map((block) => asText(block?.text ?? block)).join('\n')
}

export function asText(value) {
  if (typeof value === 'string') return value
  try {
    return JSON.stringify(value, null, 2) ?? String(value)
  } catch {
    return '…' // nested too deeply to be written again
  }
}

/** A name, which may be anything in a file that somebody dropped. */
export const brief = (value) => [...asText(value).slice(0, 200)].slice(0, 99).join('')
