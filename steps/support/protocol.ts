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
/** The blocks of a message's content; a string is short for one text block. */
const toBlocks = (content: unknown): Json[] =>
  (Array.isArray(content) ? content : [content].filter(Boolean)).map(toBlock)

const KINDS = {
  'a valid string': isText,
  'a valid integer': Number.isInteger,
  'a valid array': Array.isArray,
  'an object': isObject,
}
const REQUEST_KEYS =
  'model messages max_tokens system tools tool_choice stream temperature top_k top_p ' +
  'thinking output_config metadata stop_sequences cache_control container diagnostics ' +
  'inference_geo service_tier speed'
const TOOL_KEYS =
  'name description input_schema type cache_control strict input_examples ' +
  'allowed_callers defer_loading eager_input_streaming'
const NAME = /^[a-zA-Z0-9_-]{1,128}$/
const OWNERS: Json = { tool_use: 'assistant', tool_result: 'user' }
const UNEXPECTED = (id: string) =>
  `unexpected \`tool_use_id\` found in \`tool_result\` blocks: ${id}. ` +
  'Each `tool_result` block must have a corresponding `tool_use` block ' +
  'in the previous message.'
const MULTIPLE = (id: string) =>
  'each tool_use must have a single result. ' +
  `Found multiple \`tool_result\` blocks with id: ${id}`
const MISSING = (ids: string) =>
  '`tool_use` ids were found without `tool_result` blocks immediately after: ' +
  `${ids}. Each \`tool_use\` block must have a corresponding \`tool_result\` block ` +
  'in the next message.'

class Refusal extends Error {}

function refuse(sentence: string): never {
  throw new Refusal(sentence)
}

/**
 * What the API refuses with status 400 `invalid_request_error`, in its own words (as
 * public reports quote them); undefined when the request is fine. Linear in the number
 * of blocks, since it runs before every offline request.
 */
export function requestError(body: unknown): string | undefined {
  try {
    checkRequest(body as Json)
    return undefined
  } catch (error) {
    if (error instanceof Refusal) return error.message
    throw error
  }
}

function checkRequest(body: Json) {
  check('body', body, 'an object')
  const { messages, tools = [] } = body
  check('model', body.model, 'a valid string')
  checkTools(tools)
  check('messages', messages, 'a valid array')
  check('max_tokens', body.max_tokens, 'a valid integer')
  checkKeys('', body, REQUEST_KEYS)
  if (messages.length === 0) refuse('messages: at least one message is required')
  const last = messages.at(-1)
  const ids = new Set<string>()
  let calls: string[] = [] // of the message before
  for (const [i, message] of messages.entries()) {
    checkMessage(`messages.${i}`, message, i === 0, message === last)
    const blocks = toBlocks(message.content)
    for (const [j, block] of blocks.entries()) {
      checkBlock(`messages.${i}.content.${j}`, block, message.role, ids)
    }
    checkResults(`messages.${i}`, blocks, calls)
    calls = blocks.filter(({ type }) => type === 'tool_use').map(({ id }) => id)
  }
  checkResults(`messages.${messages.length - 1}`, [], calls)
  if (ids.size > 0 && tools.length === 0) {
    refuse('Requests which include `tool_use` or `tool_result` blocks must define tools.')
  }
  // A turn that the API paused at one of its own tools may be sent back to go on.
  const paused = /^server_tool_use$|._tool_result$/.test(last.content.at(-1)?.type)
  if (last.role === 'assistant' && last.content.length > 0 && !paused) {
    const rule = 'This model does not support assistant message prefill.'
    refuse(`${rule} The conversation must end with a user message.`)
  }
}

function check(at: string, value: unknown, kind: keyof typeof KINDS) {
  if (value === undefined) refuse(`${at}: Field required`)
  if (!KINDS[kind](value)) refuse(`${at}: Input should be ${kind}`)
}

function checkKeys(at: string, value: Json, known: string) {
  for (const key in value) {
    // JSON leaves these two out: a tool may carry its `run`.
    if (value[key] === undefined || typeof value[key] === 'function') continue
    if (known.split(' ').includes(key)) continue
    refuse(`${at}${key}: Extra inputs are not permitted`)
  }
}

function checkTools(tools: Json[]) {
  check('tools', tools, 'a valid array')
  for (const [i, tool] of tools.entries()) {
    check(`tools.${i}`, tool, 'an object')
    if (/_\d{8}$/.test(tool.type)) continue // the API's own: a dated type, no schema
    const at = `tools.${i}.custom.`
    check(`${at}name`, tool.name, 'a valid string')
    const matches = NAME.test(tool.name)
    if (!matches) refuse(`${at}name: String should match pattern '${NAME.source}'`)
    check(`${at}input_schema`, tool.input_schema, 'an object')
    const { type } = tool.input_schema
    if (type !== 'object') refuse(`${at}input_schema.type: Input should be 'object'`)
    checkKeys(at, tool, TOOL_KEYS)
  }
  const names = new Set(tools.map((tool) => tool.name))
  if (names.size < tools.length) refuse('tools: Tool names must be unique.')
}

function checkMessage(at: string, message: Json, first: boolean, last: boolean) {
  check(at, message, 'an object')
  const { role, content } = message
  check(`${at}.role`, role, 'a valid string')
  if (!isText(content)) check(`${at}.content`, content, 'a valid array')
  checkKeys(`${at}.`, message, 'role content')
  const rule = 'first message must use the "user" role'
  if (first && role === 'assistant') refuse(`messages: ${rule}`)
  // Newer models take a system message in the middle of a conversation.
  if (role !== 'user' && role !== 'assistant' && (role !== 'system' || first)) {
    refuse(`messages: Unexpected role "${role}". Allowed roles are "user" or "assistant"`)
  }
  if (content.length === 0 && !(last && role === 'assistant')) {
    const except = 'except for the optional final assistant message'
    refuse(`${at}: all messages must have non-empty content ${except}`)
  }
}

function checkBlock(at: string, block: Json, role: string, ids: Set<string>) {
  check(at, block, 'an object')
  const { type, content } = block
  check(`${at}.type`, type, 'a valid string')
  const owner = OWNERS[type] ?? role
  if (owner !== role) {
    const message = at.split('.content')[0]
    refuse(`${message}: \`${type}\` blocks can only be in \`${owner}\` messages`)
  }
  const texts: Json[] =
    type === 'tool_result' && Array.isArray(content) ? content : [block]
  const blank = texts.find((part) => part?.type === 'text' && !hasWords(part.text))
  const must = blank?.text ? 'contain non-whitespace text' : 'be non-empty'
  if (blank) refuse(`messages: text content blocks must ${must}`)
  if (type === 'tool_use') {
    check(`${at}.tool_use.id`, block.id, 'a valid string')
    check(`${at}.tool_use.name`, block.name, 'a valid string')
    check(`${at}.tool_use.input`, block.input, 'an object')
    if (ids.has(block.id)) refuse(`${at}: \`tool_use\` ids must be unique`)
    ids.add(block.id)
  }
  if (type === 'tool_result' && block.is_error && !content?.length) {
    refuse(`${at}.tool_result: content cannot be empty if \`is_error\` is true`)
  }
}

/** Each call of the message before needs one result, ahead of everything else here. */
function checkResults(at: string, blocks: Json[], calls: string[]) {
  const open = new Set(calls)
  let ahead = true
  for (const [j, { type, tool_use_id: id }] of blocks.entries()) {
    ahead &&= type === 'tool_result'
    if (type !== 'tool_result') continue
    if (!open.has(id)) {
      const wrong = calls.includes(id) ? MULTIPLE(id) : UNEXPECTED(id)
      refuse(`${at}.content.${j}: ${wrong}`)
    }
    if (ahead) open.delete(id)
  }
  if (open.size > 0) refuse(`${at}: ${MISSING([...open].join(', '))}`)
}

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
  const wrong = answerError(text, stop, !called, request.tools)
  if (wrong) throw new ReplyError(wrong)
  const agreed = called ? 'tool_use' : stop === 'tool_use' ? 'end_turn' : stop
  const stop_reason = CUT_OR_PAUSED.test(stop) ? stop : agreed
  const usage = reply.usage ?? { input_tokens: 0, output_tokens: 0 }
  const fixed = { type: 'message', role: 'assistant', content, stop_reason, usage }
  return { ...reply, ...fixed } as unknown as Message
}

function answerError(text: string, stop: string, final: boolean, tools: Json[] = []) {
  if (stop === 'refusal' || stop === 'content_filter') {
    return `the model refused to answer (stop_reason ${stop})${text && `: ${text}`}`
  }
  if (!final || stop === 'pause_turn') return undefined
  const empty = `the reply was empty (stop_reason ${stop})`
  const cut = 'the reply was cut by max_tokens before any text'
  if (!text) return stop === 'max_tokens' ? cut : empty
  const name = writtenCall(text, tools)
  return name && `the model wrote its call of ${name} as text: ${show(text)}`
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
  const given = call.input ?? {}
  const input = isText(given) ? parsed(given || '{}') : given
  // Nothing is lost, and the tool's own schema refuses it.
  const invalid = { invalid_json: isText(given) ? given : JSON.stringify(given) }
  return { ...call, id, name, input: isObject(input) ? input : invalid }
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
