/** The tidying of a reply from an endpoint that bends the protocol. */
import type { Message, MessageCreateParams } from '@anthropic-ai/sdk/resources/messages'
import { ReplyError, show } from '../base/errors.ts'
import { mapStrings } from '../base/lane-file.ts'
import { hasWords, isObject, isText, type Json, toBlocks } from '../base/protocol.ts'

type Request = Pick<MessageCreateParams, 'messages'>

/** What other protocols call it, in small letters. */
const STOP_REASONS = new Map([
  ['stop', 'end_turn'],
  ['tool_calls', 'tool_use'],
  ['length', 'max_tokens'],
  ['content_filter', 'refusal'],
])
/** These are true of a reply with calls as well. */
const CUT = ['max_tokens', 'model_context_window_exceeded']

/**
 * Makes the reply of an endpoint that bends the protocol well formed: content is an array
 * without empty texts, inputs are objects, ids are there and unique in the conversation,
 * `stop_reason` agrees with the blocks, no string holds half a character. Other blocks
 * stay as they came, and so does a well-formed reply.
 *
 * @throws {ReplyError} where it is no message, or an error
 */
export function tidyReply(reply: unknown, { messages }: Request): Message {
  const error = isObject(reply) && (reply.error?.message ?? reply.error)
  if (error) throw new ReplyError(`the reply was an error: ${show(error)}`)
  if (!isObject(reply) || !('content' in reply || 'role' in reply)) {
    throw new ReplyError(`the reply was no message: ${show(reply)}`)
  }
  const given = String(reply.stop_reason ?? 'end_turn').toLowerCase()
  const stop = STOP_REASONS.get(given) ?? given
  const all = tidyContent(toBlocks(wellFormed(reply.content)), messages)
  // What a model was stopped in by a refusal is not to be run.
  const content = stop === 'refusal' ? all.filter(({ type }) => type !== 'tool_use') : all
  const called = content.some(({ type }) => type === 'tool_use')
  const agreed = called ? 'tool_use' : stop === 'tool_use' ? 'end_turn' : stop
  const stop_reason = CUT.includes(stop) ? stop : agreed
  const usage = { input_tokens: 0, output_tokens: 0, ...reply.usage }
  const fixed = { type: 'message', role: 'assistant', content, stop_reason, usage }
  return { ...reply, ...fixed } as unknown as Message
}

/** A value in whose strings no half of a character is left: the API refuses it. */
export const wellFormed = <T>(value: T): T =>
  mapStrings(value, (text) => text.toWellFormed())

/** The ids of each conversation: read once, then every reply adds its own. */
const known = new WeakMap<object, Set<unknown>>()

function idsIn(messages: Request['messages']): Set<unknown> {
  const blocks = () => messages.flatMap(({ content }) => toBlocks(content))
  const ids = known.get(messages) ?? new Set(blocks().map(({ id }) => id))
  known.set(messages, ids)
  return ids
}

function tidyContent(content: Json[], messages: Request['messages']): Json[] {
  const used = idsIn(messages)
  return content
    .filter((block) => isObject(block) && (block.type !== 'text' || hasWords(block.text)))
    .map((block) => {
      const tidied = block.type === 'tool_use' ? tidyCall(block, used) : block
      used.add(tidied.id)
      return tidied
    })
}

function tidyCall(call: Json, used: Set<unknown>): Json {
  let { id } = call
  for (let n = 0; !hasWords(id) || used.has(id); n++) id = `toolu_${n}`
  const name = hasWords(call.name) ? call.name : 'unnamed_tool'
  return { ...call, id, name, input: tidyInput(call.input ?? {}) }
}

function tidyInput(given: unknown): Json {
  const input = isText(given) ? parsed(given || '{}') : given
  if (isObject(input)) return input
  // Nothing is lost, and the tool's own schema refuses it.
  return { invalid_json: isText(given) ? given : JSON.stringify(given) }
}

/** What a text holds as JSON, well formed; undefined where it is none. */
export function parsed(text: string): unknown {
  try {
    return wellFormed(JSON.parse(text))
  } catch {
    return undefined
  }
}
