/** The tidying of a reply from an endpoint that bends the protocol. */
import type { Message, MessageCreateParams } from '@anthropic-ai/sdk/resources/messages'
import { hasWords, isObject, isText, type Json, toBlocks } from './protocol.ts'

type Request = Pick<MessageCreateParams, 'messages' | 'tools'>

/** Why a reply cannot be made well formed, in one sentence. */
export class ReplyError extends Error {}

const OPENAI = { stop: 'end_turn', length: 'max_tokens', tool_calls: 'tool_use' } as Json
const CUT_OR_PAUSED = /^(max_tokens|model_context_window_exceeded|pause_turn)$/
/** How a model begins a call written as text; in backticks it only talks of one. */
const CALL_MARKER =
  /(?<!`)(?:<[\w:|｜]*(?:tool.call|function_call|invoke name=|function=)|\[TOOL_CALLS\])/g

/**
 * Makes the reply of an endpoint that bends the protocol well formed: content is an array
 * without empty texts, inputs are objects, ids are there and unique in the conversation,
 * `stop_reason` agrees with the blocks. Other blocks stay as they came, and so does a
 * well-formed reply. A reply without `usage` gets zeros, since no number is known.
 *
 * @throws {ReplyError} no message, an error, a refusal, nothing, or a call made as text
 */
export function tidyReply(reply: unknown, request: Request): Message {
  const error = isObject(reply) && (reply.error?.message ?? reply.error)
  if (error) throw new ReplyError(`the reply was an error: ${show(error)}`)
  if (!isObject(reply) || !('content' in reply || 'role' in reply)) {
    throw new ReplyError(`the reply was no message: ${show(reply)}`)
  }
  const content = tidyContent(reply.content, request)
  const stop = OPENAI[reply.stop_reason] ?? reply.stop_reason ?? 'end_turn'
  const called = content.some((block) => block.type === 'tool_use')
  const text = content.map((block) => (block.type === 'text' ? block.text : '')).join('')
  const wrong = answerError(text, stop, !called, request)
  if (wrong) throw new ReplyError(wrong)
  const agreed = called ? 'tool_use' : stop === 'tool_use' ? 'end_turn' : stop
  const stop_reason = CUT_OR_PAUSED.test(stop) ? stop : agreed
  const usage = reply.usage ?? { input_tokens: 0, output_tokens: 0 }
  const fixed = { type: 'message', role: 'assistant', content, stop_reason, usage }
  return { ...reply, ...fixed } as unknown as Message
}

function answerError(text: string, stop: string, final: boolean, request: Request) {
  if (stop === 'refusal' || stop === 'content_filter') {
    return `the model refused to answer (stop_reason ${stop})${text && `: ${text}`}`
  }
  if (!final || stop === 'pause_turn') return undefined
  const empty = `the reply was empty (stop_reason ${stop})`
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

/** The offered tool that a text calls, be it as bare JSON or behind a marker. */
function writtenCall(text: string, tools: Json[]): string | undefined {
  const json = /^\s*```\w*\n(.*)\n```\s*$/s.exec(text)?.[1] ?? text
  const names = [parsed(json)].flat().map((call) => {
    const input = call?.arguments ?? call?.parameters ?? call?.input
    return input !== undefined && call.name
  })
  for (const { index } of text.matchAll(CALL_MARKER)) {
    const near = text.slice(index, index + 120)
    names.push(...(near.match(/(?<=["'=.>\]\n])[\w-]+/g) ?? []))
  }
  return tools.find((tool) => names.includes(tool.name))?.name
}

function tidyContent(content: unknown, { messages }: Request): Json[] {
  const earlier = idsIn(messages)
  const own = new Set<unknown>()
  const isUsed = (id: unknown) => own.has(id) || earlier.has(id)
  return toBlocks(content)
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

function show(value: unknown): string {
  const text = isText(value) ? value : (JSON.stringify(value) ?? 'nothing')
  return text.trim().slice(0, 200).replace(/\s+/g, ' ') || 'nothing'
}
