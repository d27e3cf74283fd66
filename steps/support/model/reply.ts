/** The tidying of a reply from an endpoint that bends the protocol. */
import type { Message } from '@anthropic-ai/sdk/resources'
import { ReplyError, show } from '../base/errors.ts'
import { parseJson } from '../base/lane-file.ts'
import { hasWords, isObject, isText, type Json, toBlocks } from '../base/protocol.ts'

/** What other protocols call it, in small letters. */
const STOP_REASONS = new Map([
  ['stop', 'end_turn'],
  ['tool_calls', 'tool_use'],
  ['length', 'max_tokens'],
  ['content_filter', 'refusal'],
])
const CUT = ['max_tokens', 'model_context_window_exceeded'] // beside calls, too

type Ids = { has: (id: string) => boolean }

/**
 * Makes the reply of an endpoint that bends the protocol well formed: content is an array
 * without empty texts, inputs are objects, ids are there and not among the `known` ones,
 * `stop_reason` agrees with the blocks. Other blocks stay as they came, and so does a
 * well-formed reply.
 *
 * @throws {ReplyError} where it is no message, or an error
 */
export function tidyReply(reply: unknown, known: Ids): Message {
  const error = isObject(reply) && (reply.error?.message ?? reply.error)
  if (error) throw new ReplyError(`the reply was an error: ${show(error)}`)
  if (!isObject(reply) || !('content' in reply || 'role' in reply)) {
    throw new ReplyError(`the reply was no message: ${show(reply)}`)
  }
  const given = String(reply.stop_reason ?? 'end_turn').toLowerCase()
  const stop = STOP_REASONS.get(given) ?? given
  const all = tidyContent(toBlocks(reply.content), known)
  // What a model was stopped in by a refusal is not to be run.
  const content = stop === 'refusal' ? all.filter(({ type }) => type !== 'tool_use') : all
  const called = content.some(({ type }) => type === 'tool_use')
  const agreed = called ? 'tool_use' : stop === 'tool_use' ? 'end_turn' : stop
  const stop_reason = CUT.includes(stop) ? stop : agreed
  const usage = { input_tokens: 0, output_tokens: 0, ...reply.usage }
  const fixed = { type: 'message', role: 'assistant', content, stop_reason, usage }
  return { ...reply, ...fixed } as unknown as Message
}

function tidyContent(content: Json[], known: Ids): Json[] {
  const used = new Set<unknown>()
  return content
    .filter((block) => isObject(block) && (block.type !== 'text' || hasWords(block.text)))
    .map((block) => {
      if (block.type !== 'tool_use') return block
      let { id } = block
      for (let n = 0; !hasWords(id) || used.has(id) || known.has(id); n++)
        id = `toolu_${n}`
      used.add(id)
      const name = hasWords(block.name) ? block.name : 'unnamed_tool'
      return { ...block, id, name, input: tidyInput(block.input ?? {}) }
    })
}

function tidyInput(given: unknown): Json {
  const input = isText(given) ? parseJson(given || '{}') : given
  if (isObject(input)) return input
  // Nothing is lost, and the tool's own schema refuses it.
  return { invalid_json: isText(given) ? given : JSON.stringify(given) }
}
