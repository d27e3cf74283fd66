/** The tidying of a reply from an endpoint that bends the protocol. */
import type { Message, MessageCreateParams } from '@anthropic-ai/sdk/resources/messages'
import { ReplyError, show } from '../base/errors.ts'
import { hasWords, isObject, isText, type Json, toBlocks } from '../base/protocol.ts'

type Request = Pick<MessageCreateParams, 'messages' | 'tools'>

/** What other protocols call it, in small letters. */
const STOP_REASONS = new Map([
  ...['stop', 'eos'].map((name) => [name, 'end_turn'] as const),
  ...['tool_calls', 'function_call'].map((name) => [name, 'tool_use'] as const),
  ['length', 'max_tokens'],
])
const CUT = /^(max_tokens|model_context_window_exceeded)$/
/** How a line begins that is a call written as text. */
const CALL_MARKER = new RegExp(
  '^(?:\\[TOOL_CALLS\\]|<[\\w:|｜>]*' +
    '(?:tool.?call|function.?call|invoke name=|function=|python_tag|commentary to=))',
  'gim',
)

/**
 * Makes the reply of an endpoint that bends the protocol well formed: content is an array
 * without empty texts, inputs are objects, ids are there and unique in the conversation,
 * `stop_reason` agrees with the blocks. Other blocks stay as they came, and so does a
 * well-formed reply. Tokens that are no number count as zero. What a paused turn had said
 * before, `paused`, is the beginning of the reply.
 *
 * @throws {ReplyError} no message, an error, a refusal, nothing, or a call made as text
 */
export function tidyReply(reply: unknown, request: Request, paused?: Message): Message {
  const error = isObject(reply) && (reply.error?.message ?? reply.error)
  if (error) throw new ReplyError(`the reply was an error: ${show(error)}`)
  if (!isObject(reply) || !('content' in reply || 'role' in reply)) {
    throw new ReplyError(`the reply was no message: ${show(reply)}`)
  }
  const blocks = toBlocks(reply.content)
  const content = tidyContent(paused ? [...paused.content, ...blocks] : blocks, request)
  const given = String(reply.stop_reason ?? 'end_turn').toLowerCase()
  const stop = STOP_REASONS.get(given) ?? given
  const called = content.some((block) => block.type === 'tool_use')
  const text = content.map((block) => (block.type === 'text' ? block.text : '')).join('')
  const wrong = answerError(text, stop, content, request)
  if (wrong) throw new ReplyError(wrong, content)
  const agreed = called ? 'tool_use' : stop === 'tool_use' ? 'end_turn' : stop
  const stop_reason = CUT.test(stop) ? stop : agreed
  const usage = tidyUsage(reply.usage, paused?.usage)
  const fixed = { type: 'message', role: 'assistant', content, stop_reason, usage }
  return { ...reply, ...fixed } as unknown as Message
}

function tidyUsage(given: unknown, earlier?: Message['usage']) {
  const usage = isObject(given) ? given : {}
  const tokens = (key: 'input_tokens' | 'output_tokens') => {
    const count = Number(usage[key])
    return (count > 0 && Number.isSafeInteger(count) ? count : 0) + (earlier?.[key] ?? 0)
  }
  const [input_tokens, output_tokens] = [tokens('input_tokens'), tokens('output_tokens')]
  return { ...usage, input_tokens, output_tokens }
}

function answerError(text: string, stop: string, content: Json[], request: Request) {
  if (stop === 'refusal' || stop === 'content_filter') {
    return `the model refused to answer (stop_reason ${stop})${text && `: ${text}`}`
  }
  const types = content.map(({ type }) => type)
  if (types.includes('tool_use') || stop === 'pause_turn') return undefined
  const kinds = [...new Set(types)].join(', ')
  const what = kinds ? `held neither text nor a call, only ${kinds}` : 'was empty'
  const empty = `the reply ${what} (stop_reason ${stop})`
  const cut = 'the reply was cut by max_tokens before any text'
  if (!text) return (stop === 'max_tokens' ? cut : empty) + lastWords(request.messages)
  const name = writtenCall(text, request.tools ?? [])
  return name && `the model wrote its call of ${name} as text: ${show(text)}`
}

/** An empty reply hides that, since the last prompt, there was something before it. */
function lastWords(messages: MessageCreateParams['messages']): string {
  const isPrompt = ({ role, content }: (typeof messages)[number]) =>
    role === 'user' && !toBlocks(content).some(({ type }) => type === 'tool_result')
  const texts = messages
    .slice(messages.findLastIndex(isPrompt))
    .map(({ role, content }) => {
      const blocks = role === 'assistant' ? toBlocks(content) : []
      return blocks.map((block) => (block.type === 'text' ? block.text : '')).join('')
    })
  const last = texts.findLast(hasWords)
  return last ? `; the last words before it: ${show(last)}` : ''
}

/**
 * The offered tool that a text calls at its end: as JSON, maybe in a fence, or behind a
 * marker. A marker in backticks, or in a text that ends as a sentence, is only talked of.
 */
function writtenCall(text: string, tools: Json[]): string | undefined {
  const end = text.trimEnd().replace(/\n```$/, '')
  const names = linesFrom(end, /^[ \t]*[[{]/gm).flatMap((json) => namesIn(parsed(json)))
  const isProse = /[.!?。！？]$/.test(end)
  for (const call of isProse ? [] : linesFrom(outsideFences(text), CALL_MARKER)) {
    names.push(...(call.slice(0, 120).match(/(?<=["'=.>\]\n])[\w-]+/g) ?? []))
  }
  return tools.find((tool) => names.includes(tool.name))?.name
}

/** The text from each of the last lines on that begin so. */
function linesFrom(text: string, begin: RegExp): string[] {
  return Array.from(text.matchAll(begin), ({ index }) => text.slice(index)).slice(-20)
}

const outsideFences = (text: string) => text.replace(/^```.*?^```/gms, '')

/** The names of the tools that a value calls, whichever protocol it comes from. */
function namesIn(value: Json | undefined): unknown[] {
  const calls = [value?.tool_calls ?? value].flat().map((call) => call?.function ?? call)
  return calls.map((call) => {
    const input = call?.arguments ?? call?.parameters ?? call?.input
    return input !== undefined && call.name
  })
}

function tidyContent(content: Json[], { messages }: Request): Json[] {
  const earlier = idsIn(messages)
  const own = new Set<unknown>()
  const isUsed = (id: unknown) => own.has(id) || earlier.has(id)
  return content
    .filter((block) => isObject(block) && (block.type !== 'text' || hasWords(block.text)))
    .map((block) => {
      const tidied = block.type === 'tool_use' ? tidyCall(block, isUsed) : block
      own.add(tidied.id)
      return tidied
    })
}

const known = new WeakMap<object, { read: number; ids: Set<unknown> }>()

/** The ids in a history. It only grows, so each message is looked at once. */
function idsIn(messages: Json[]): Set<unknown> {
  const entry = known.get(messages) ?? { read: 0, ids: new Set() }
  known.set(messages, entry)
  for (; entry.read < messages.length; entry.read++) {
    for (const { id } of toBlocks(messages[entry.read].content)) entry.ids.add(id)
  }
  return entry.ids
}

function tidyCall(call: Json, isUsed: (id: unknown) => boolean): Json {
  let { id } = call
  for (let n = 0; !hasWords(id) || isUsed(id); n++) id = `toolu_${n}`
  const name = hasWords(call.name) ? call.name : 'unnamed_tool'
  const given = call.input ?? {}
  const input = isText(given) ? parsed(given || '{}') : given
  // What is well formed stays the object that it is: copies are slow to send again.
  const isMended = id !== call.id || name !== call.name || input !== call.input
  if (isObject(input)) return isMended ? { ...call, id, name, input } : call
  // Nothing is lost, and the tool's own schema refuses it.
  const text = isText(given) ? given : JSON.stringify(given)
  return { ...call, id, name, input: { invalid_json: text } }
}

// biome-ignore lint/suspicious/noExplicitAny: whatever the text holds
function parsed(text: string): any {
  try {
    return JSON.parse(text)
  } catch {
    return undefined
  }
}
