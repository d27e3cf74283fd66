/** The Messages API's rules for a request. */

// biome-ignore lint/suspicious/noExplicitAny: what is checked here has no type yet
export type Json = Record<string, any>

export const isText = (value: unknown): value is string => typeof value === 'string'
export const hasWords = (value: unknown) => isText(value) && /\S/.test(value)
export const isObject = (value: unknown): value is Json =>
  typeof value === 'object' && value !== null && !Array.isArray(value)
/** The blocks of a message's content; a string is short for one text block. */
export const toBlocks = (content: unknown): Json[] =>
  [content || []]
    .flat()
    .map((item) => (isText(item) ? { type: 'text', text: item } : item))

const KINDS = {
  'a valid string': isText,
  'a valid integer': Number.isInteger,
  'a valid array': Array.isArray,
  'an object': isObject,
}
// In JSON only half a character is written as such an escape.
const HALF = /(?<!\\)(?:\\\\)*\\u(d[89a-f])../
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
 * public reports quote them); undefined when the request is fine. Linear in its size,
 * since it runs before every offline request.
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
  checkText(body)
  const { messages, tools = [] } = body
  check('model', body.model, 'a valid string')
  checkTools(tools)
  check('messages', messages, 'a valid array')
  check('max_tokens', body.max_tokens, 'a valid integer')
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
  if (last.role === 'assistant' && last.content.length > 0) {
    const rule = 'This model does not support assistant message prefill.'
    refuse(`${rule} The conversation must end with a user message.`)
  }
}

function check(at: string, value: unknown, kind: keyof typeof KINDS) {
  if (value === undefined) refuse(`${at}: Field required`)
  if (!KINDS[kind](value)) refuse(`${at}: Input should be ${kind}`)
}

/** Refuses half a character, which is what a cut in the middle of an emoji leaves. */
function checkText(body: Json) {
  const found = HALF.exec(JSON.stringify(body))
  if (!found) return
  const at = found.index + found[0].length
  const what = found[1] < 'dc' ? 'no low surrogate' : 'invalid high surrogate'
  const place = `line 1 column ${at + 1} (char ${at})`
  refuse(`The request body is not valid JSON: ${what} in string: ${place}`)
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
  }
  const names = new Set(tools.map((tool) => tool.name))
  if (names.size < tools.length) refuse('tools: Tool names must be unique.')
}

function checkMessage(at: string, message: Json, first: boolean, last: boolean) {
  check(at, message, 'an object')
  const { role, content, ...more } = message
  check(`${at}.role`, role, 'a valid string')
  if (!isText(content)) check(`${at}.content`, content, 'a valid array')
  const [extra] = Object.keys(more).filter((key) => more[key] !== undefined)
  if (extra) refuse(`${at}.${extra}: Extra inputs are not permitted`)
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

/**
 * Each call of the message before needs one result, ahead of everything else here.
 * Results spread over several messages are refused, as the strictest endpoints do.
 */
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
