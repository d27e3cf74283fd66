/** The Messages API's rules for a request, and the tidying of a reply that bends them. */
import type { Message, MessageCreateParams } from '@anthropic-ai/sdk/resources/messages'

// biome-ignore lint/suspicious/noExplicitAny: what is checked here has no type yet
type Json = Record<string, any>
type Request = Pick<MessageCreateParams, 'messages' | 'tools'>

const isText = (value: unknown): value is string => typeof value === 'string'
const hasWords = (value: unknown) => isText(value) && /\S/.test(value)
const isObject = (value: unknown): value is Json =>
  typeof value === 'object' && value !== null && !Array.isArray(value)
const toBlock = (item: unknown) =>
  (isText(item) ? { type: 'text', text: item } : item) as Json
/** A string is short for one text block. */
const toBlocks = (content: unknown) =>
  (Array.isArray(content) ? content : [content || []].flat()).map(toBlock)

type Fields = Record<string, keyof typeof KINDS>
const KINDS = {
  'a valid string': isText,
  'a valid integer': Number.isInteger,
  'a valid array': Array.isArray,
  'an object': isObject,
  'a valid array or string': (value: unknown) => isText(value) || Array.isArray(value),
}
const REQUEST: Fields = {
  model: 'a valid string',
  messages: 'a valid array',
  max_tokens: 'a valid integer',
}
const REQUEST_OPTIONS =
  'system tools tool_choice stream temperature top_k top_p thinking output_config ' +
  'metadata stop_sequences cache_control container diagnostics inference_geo ' +
  'service_tier speed'
const TOOL: Fields = { name: 'a valid string', input_schema: 'an object' }
const TOOL_OPTIONS =
  'type description cache_control strict input_examples allowed_callers ' +
  'defer_loading eager_input_streaming'
const TOOL_NAME = /^[a-zA-Z0-9_-]{1,128}$/
const MESSAGE: Fields = { role: 'a valid string', content: 'a valid array or string' }
const BLOCK: Fields = { type: 'a valid string' }
const BLOCKS: Record<string, Fields> = {
  text: { text: 'a valid string' },
  tool_use: { id: 'a valid string', name: 'a valid string', input: 'an object' },
  tool_result: { tool_use_id: 'a valid string' },
}
const OWNERS: Record<string, string> = { tool_use: 'assistant', tool_result: 'user' }

/**
 * What the API refuses with status 400 `invalid_request_error`, in its own words (as
 * public reports quote them); undefined when the request is fine. Linear in the number
 * of blocks, and done at the first error: it runs before every offline request.
 */
export function requestError(body: unknown): string | undefined {
  try {
    checkRequest(body as Json)
  } catch (error) {
    if (error instanceof Refusal) return error.message
    throw error
  }
}

class Refusal extends Error {}

function refuse(sentence: string): never {
  throw new Refusal(sentence)
}

function checkRequest(body: Json) {
  checkFields(() => '', body, REQUEST, REQUEST_OPTIONS)
  const { messages, tools = [] } = body
  checkTools(tools)
  if (messages.length === 0) refuse('messages: at least one message is required')
  const ids = new Set<string>()
  let open = new Set<string>() // the calls of the message before
  messages.forEach((message: Json, i: number) => {
    const blocks = checkMessage(i, message, i === messages.length - 1)
    checkResults(i, blocks, open)
    open = checkCalls(i, blocks, ids)
  })
  checkResults(messages.length - 1, [], open)
  if (ids.size > 0 && tools.length === 0) {
    refuse('Requests which include `tool_use` or `tool_result` blocks must define tools.')
  }
  const { role, content } = messages.at(-1)
  // A turn that the API paused at one of its own tools may be sent back to go on.
  const paused = /^server_tool_use$|._tool_result$/.test(content.at(-1)?.type)
  if (role !== 'assistant' || content.length === 0 || paused) return
  const rule = 'This model does not support assistant message prefill.'
  refuse(`${rule} The conversation must end with a user message.`)
}

/** `fields` must be there, each of its kind, and nothing else but `options`, if given. */
function checkFields(at: () => string, value: Json, fields: Fields, options?: string) {
  if (!isObject(value))
    refuse(`${at().slice(0, -1) || 'body'}: Input should be an object`)
  for (const key in fields) {
    if (value[key] === undefined) refuse(`${at()}${key}: Field required`)
    if (!KINDS[fields[key]](value[key]))
      refuse(`${at()}${key}: Input should be ${fields[key]}`)
  }
  if (options === undefined) return
  for (const key in value) {
    // JSON leaves these two out: a tool may carry its `run`.
    if (value[key] === undefined || typeof value[key] === 'function') continue
    if (key in fields || options.split(' ').includes(key)) continue
    refuse(`${at()}${key}: Extra inputs are not permitted`)
  }
}

function checkTools(tools: Json[]) {
  if (!Array.isArray(tools)) refuse('tools: Input should be a valid array')
  for (const [i, tool] of tools.entries()) {
    if (/_\d{8}$/.test(tool?.type)) continue // the API's own: a dated type, no schema
    const at = () => `tools.${i}.custom.`
    checkFields(at, tool, TOOL, TOOL_OPTIONS)
    const fits = TOOL_NAME.test(tool.name)
    if (!fits) refuse(`${at()}name: String should match pattern '${TOOL_NAME.source}'`)
    const isSchema = tool.input_schema.type === 'object'
    if (!isSchema) refuse(`${at()}input_schema.type: Input should be 'object'`)
  }
  const names = new Set(tools.map((tool) => tool.name))
  if (names.size < tools.length) refuse('tools: Tool names must be unique.')
}

function checkMessage(i: number, message: Json, last: boolean): Json[] {
  checkFields(() => `messages.${i}.`, message, MESSAGE, '')
  const { role, content } = message
  // Newer models take a system message in the middle of a conversation.
  if (role !== 'user' && role !== 'assistant' && (role !== 'system' || i === 0)) {
    refuse(`messages: Unexpected role "${role}". Allowed roles are "user" or "assistant"`)
  }
  if (i === 0 && role !== 'user')
    refuse('messages: first message must use the "user" role')
  if (content.length === 0 && !(role === 'assistant' && last)) {
    const rule = 'all messages must have non-empty content'
    refuse(`messages.${i}: ${rule} except for the optional final assistant message`)
  }
  const blocks = toBlocks(content)
  blocks.forEach((block, j) => checkBlock(i, j, block, role))
  return blocks
}

function checkBlock(i: number, j: number, block: Json, role: string) {
  const at = () => `messages.${i}.content.${j}.`
  checkFields(at, block, BLOCK)
  const { type } = block
  const owner = OWNERS[type] ?? role
  if (owner !== role)
    refuse(`messages.${i}: \`${type}\` blocks can only be in \`${owner}\` messages`)
  if (BLOCKS[type]) checkFields(() => `${at()}${type}.`, block, BLOCKS[type])
  if (type === 'text') checkText(block)
  if (type !== 'tool_result') return
  if (block.is_error && !block.content?.length) {
    refuse(`${at()}tool_result: content cannot be empty if \`is_error\` is true`)
  }
  if (Array.isArray(block.content)) block.content.forEach(checkText)
}

function checkText({ type, text }: Json) {
  if (type !== 'text' || hasWords(text)) return
  const must = text ? 'contain non-whitespace text' : 'be non-empty'
  refuse(`messages: text content blocks must ${must}`)
}

/** Each open call needs one result, ahead of everything else in this message. */
function checkResults(i: number, blocks: Json[], open: Set<string>) {
  let ahead = true
  blocks.forEach(({ type, tool_use_id: id }, j) => {
    ahead &&= type === 'tool_result'
    if (type !== 'tool_result') return
    if (!open.has(id)) {
      const twice = blocks.slice(0, j).some((block) => block.tool_use_id === id)
      refuse(`messages.${i}.content.${j}: ${twice ? MULTIPLE(id) : UNEXPECTED(id)}`)
    }
    if (ahead) open.delete(id)
  })
  if (open.size > 0) refuse(`messages.${i}: ${MISSING([...open].join(', '))}`)
}

function checkCalls(i: number, blocks: Json[], ids: Set<string>): Set<string> {
  const calls = new Set<string>()
  blocks.forEach(({ type, id }, j) => {
    if (type !== 'tool_use') return
    if (ids.has(id)) refuse(`messages.${i}.content.${j}: \`tool_use\` ids must be unique`)
    ids.add(id)
    calls.add(id)
  })
  return calls
}

const UNEXPECTED = (id: string) =>
  `unexpected \`tool_use_id\` found in \`tool_result\` blocks: ${id}. Each ` +
  '`tool_result` block must have a corresponding `tool_use` block in the previous message.'
const MULTIPLE = (id: string) =>
  'each tool_use must have a single result. ' +
  `Found multiple \`tool_result\` blocks with id: ${id}`
const MISSING = (ids: string) =>
  `\`tool_use\` ids were found without \`tool_result\` blocks immediately after: ${ids}. ` +
  'Each `tool_use` block must have a corresponding `tool_result` block in the next message.'

/** Why a reply cannot be made well formed, in one sentence. */
export class ReplyError extends Error {}

const WORDS: Json = { stop: 'end_turn', length: 'max_tokens', tool_calls: 'tool_use' }
const KEPT = ['max_tokens', 'model_context_window_exceeded', 'pause_turn']
/** How a model begins a call that it writes as text; in backticks it only talks of one. */
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
  const calls = content.some((block) => block.type === 'tool_use')
  let stop = WORDS[reply.stop_reason] ?? reply.stop_reason ?? 'end_turn'
  const text = content.map((block) => (block.type === 'text' ? block.text : '')).join('')
  const wrong = answerError(text, stop, calls, request)
  if (wrong) throw new ReplyError(wrong)
  if (calls && !KEPT.includes(stop)) stop = 'tool_use'
  if (!calls && stop === 'tool_use') stop = 'end_turn'
  const usage = reply.usage ?? { input_tokens: 0, output_tokens: 0 }
  const head = { type: 'message', role: 'assistant' }
  return { ...reply, ...head, content, stop_reason: stop, usage } as Message
}

function answerError(
  text: string,
  stop: string,
  called: boolean,
  { tools = [] }: Request,
) {
  if (stop === 'refusal' || stop === 'content_filter') {
    return `the model refused to answer (stop_reason ${stop})${text && `: ${text}`}`
  }
  if (called || stop === 'pause_turn') return
  if (!text && stop === 'max_tokens')
    return 'the reply was cut by max_tokens before any text'
  if (!text) return `the reply was empty (stop_reason ${stop})`
  const name = writtenCall(text, tools)
  return name && `the model wrote its call of ${name} as text: ${show(text)}`
}

/** The offered tool that a text calls, be it as bare JSON or behind a marker. */
function writtenCall(text: string, tools: Json[]): string | undefined {
  const json = /^\s*```\w*\n(.*)\n```\s*$/s.exec(text)?.[1] ?? text
  const called = [parsed(json)].flat().map((call) => {
    return (call?.arguments ?? call?.parameters ?? call?.input) && call.name
  })
  for (const { index } of text.matchAll(CALL_MARKER)) {
    called.push(
      ...(text.slice(index, index + 120).match(/(?<=["'=.>\]\n])[\w-]+/g) ?? []),
    )
  }
  return tools.find((tool) => called.includes(tool.name))?.name
}

function tidyContent(content: unknown, { messages }: Request): Json[] {
  const earlier = messages.flatMap((message) => toBlocks(message.content))
  const used = new Set(earlier.map((block) => block.id))
  return toBlocks(content)
    .filter((block) => isObject(block) && (block.type !== 'text' || hasWords(block.text)))
    .map((block) => (block.type === 'tool_use' ? tidyCall(block, used) : block))
}

function tidyCall(call: Json, used: Set<unknown>): Json {
  let { id } = call
  for (let n = used.size; !hasWords(id) || used.has(id); n++) id = `toolu_${n}`
  used.add(id)
  const name = hasWords(call.name) ? call.name : 'unnamed_tool'
  const input = isText(call.input) ? parsed(call.input || '{}') : (call.input ?? {})
  // Nothing is lost, and the tool's own schema refuses it.
  const invalid_json = isText(call.input) ? call.input : JSON.stringify(call.input)
  return { ...call, id, name, input: isObject(input) ? input : { invalid_json } }
}

// biome-ignore lint/suspicious/noExplicitAny: whatever the text holds
function parsed(text: string): any {
  try {
    return JSON.parse(text)
  } catch {
    return undefined
  }
}

const show = (value: unknown) =>
  (isText(value) ? value : JSON.stringify(value))?.slice(0, 200).replace(/\s+/g, ' ') ||
  'nothing'
