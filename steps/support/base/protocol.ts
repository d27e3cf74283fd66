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
const HALF = /(?<!\\)(?:\\\\)*\\ud[89a-f]../
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

/**
 * What the API refuses with status 400 `invalid_request_error`, in its own words (as
 * public reports quote them); undefined when the request is fine. Linear in its size,
 * since it runs before every offline request.
 */
export function requestError(body: unknown): string | undefined {
  for (const fault of faultsIn(body as Json)) return fault
  return undefined
}

type Faults = Generator<string, void>

function* faultsIn(body: Json): Faults {
  // Half a character is what a cut in the middle of an emoji leaves.
  if (HALF.test(JSON.stringify(body))) {
    yield 'The request body is not valid JSON: no low surrogate in string'
  }
  const { model, max_tokens, messages, tools = [] } = body
  yield* kindOf('model', model, 'a valid string')
  yield* faultsInTools(tools)
  yield* kindOf('messages', messages, 'a valid array')
  yield* kindOf('max_tokens', max_tokens, 'a valid integer')
  if (messages.length === 0) yield 'messages: at least one message is required'
  const last = messages.at(-1)
  const ids = new Set<string>()
  let calls: string[] = [] // of the message before
  for (const [i, message] of messages.entries()) {
    const at = `messages.${i}`
    yield* faultsInMessage(at, message, i === 0, message === last)
    const blocks = toBlocks(message.content)
    for (const [j, block] of blocks.entries()) {
      yield* faultsInBlock(`${at}.content.${j}`, block, message.role, ids)
    }
    yield* faultsInResults(at, blocks, calls)
    calls = blocks.filter(({ type }) => type === 'tool_use').map(({ id }) => id)
  }
  yield* faultsInResults(`messages.${messages.length - 1}`, [], calls)
  if (ids.size > 0 && tools.length === 0) {
    yield 'Requests which include `tool_use` or `tool_result` blocks must define tools.'
  }
  if (last.role === 'assistant' && last.content.length > 0) {
    const rule = 'This model does not support assistant message prefill.'
    yield `${rule} The conversation must end with a user message.`
  }
}

function* kindOf(at: string, value: unknown, kind: keyof typeof KINDS): Faults {
  if (value === undefined) yield `${at}: Field required`
  if (!KINDS[kind](value)) yield `${at}: Input should be ${kind}`
}

function* faultsInTools(tools: Json[]): Faults {
  yield* kindOf('tools', tools, 'a valid array')
  for (const [i, { name, input_schema }] of tools.entries()) {
    const at = `tools.${i}.custom.`
    yield* kindOf(`${at}name`, name, 'a valid string')
    if (!NAME.test(name)) yield `${at}name: String should match pattern '${NAME.source}'`
    yield* kindOf(`${at}input_schema`, input_schema, 'an object')
  }
  const names = new Set(tools.map((tool) => tool.name))
  if (names.size < tools.length) yield 'tools: Tool names must be unique.'
}

function* faultsInMessage(at: string, message: Json, first: boolean, last: boolean) {
  const { role, content, ...more } = message
  if (!isText(content)) yield* kindOf(`${at}.content`, content, 'a valid array')
  const [extra] = Object.keys(more).filter((key) => more[key] !== undefined)
  if (extra) yield `${at}.${extra}: Extra inputs are not permitted`
  const rule = 'first message must use the "user" role'
  if (first && role === 'assistant') yield `messages: ${rule}`
  if (role !== 'user' && role !== 'assistant') {
    yield `messages: Unexpected role "${role}". Allowed roles are "user" or "assistant"`
  }
  if (content.length === 0 && !(last && role === 'assistant')) {
    const except = 'except for the optional final assistant message'
    yield `${at}: all messages must have non-empty content ${except}`
  }
}

function* faultsInBlock(at: string, block: Json, role: string, ids: Set<string>): Faults {
  const { type, content } = block
  yield* kindOf(`${at}.type`, type, 'a valid string')
  const owner = OWNERS[type] ?? role
  if (owner !== role) {
    const [message] = at.split('.content')
    yield `${message}: \`${type}\` blocks can only be in \`${owner}\` messages`
  }
  const isList = type === 'tool_result' && Array.isArray(content)
  const texts: Json[] = isList ? content : [block]
  const blank = texts.find((part) => part.type === 'text' && !hasWords(part.text))
  const must = blank?.text ? 'contain non-whitespace text' : 'be non-empty'
  if (blank) yield `messages: text content blocks must ${must}`
  if (type === 'tool_use') {
    yield* kindOf(`${at}.tool_use.input`, block.input, 'an object')
    if (ids.has(block.id)) yield `${at}: \`tool_use\` ids must be unique`
    ids.add(block.id)
  }
  if (type === 'tool_result' && block.is_error && !content?.length) {
    yield `${at}.tool_result: content cannot be empty if \`is_error\` is true`
  }
}

/**
 * Each call of the message before needs one result, ahead of everything else here.
 * Results spread over several messages are refused, as the strictest endpoints do.
 */
function* faultsInResults(at: string, blocks: Json[], calls: string[]): Faults {
  const open = new Set(calls)
  let ahead = true
  for (const [j, { type, tool_use_id: id }] of blocks.entries()) {
    ahead &&= type === 'tool_result'
    if (type !== 'tool_result') continue
    if (!open.has(id)) {
      const wrong = calls.includes(id) ? MULTIPLE(id) : UNEXPECTED(id)
      yield `${at}.content.${j}: ${wrong}`
    }
    if (ahead) open.delete(id)
  }
  if (open.size > 0) yield `${at}: ${MISSING([...open].join(', '))}`
}
