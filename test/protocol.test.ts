/** The API's rules, the tidying of replies, and the server that other tests rely on. */
import assert from 'node:assert/strict'
import { describe, test } from 'node:test'
import { ReplyError } from '../steps/support/base/errors.ts'
import { requestError } from '../steps/support/base/protocol.ts'
import { tidyReply } from '../steps/support/model/reply.ts'
import { type Json, startServer, text } from './server.ts'

const schema = { type: 'object', properties: { command: { type: 'string' } } }
const bash = { name: 'bash', description: 'Runs a command.', input_schema: schema }
const task = { name: 'task', input_schema: { type: 'object' } }
const use = (id: string, more: Json = {}) => {
  return { type: 'tool_use', id, name: 'bash', input: { command: 'ls' }, ...more }
}
const result = (id: string, more: Json = {}) => {
  return { type: 'tool_result', tool_use_id: id, content: 'ok', ...more }
}
const said = (words: string) => ({ type: 'text', text: words })
const user = (content: unknown) => ({ role: 'user', content })
const assistant = (content: unknown) => ({ role: 'assistant', content })
const request = (messages: unknown[], more: Json = {}): Json => {
  return { model: 'm', max_tokens: 100, tools: [bash], messages, ...more }
}
const hello = [user('Hello.')]
/** A question, then these blocks from the model, then these from the user. */
const round = (asked: unknown[], answered: unknown) => [
  ...hello,
  assistant(asked),
  user(answered),
]

// biome-ignore-start format: a table
const NO_RESULT = (at: number, ids: string) =>
  `messages.${at}: \`tool_use\` ids were found without \`tool_result\` blocks immediately after: ${ids}. Each \`tool_use\` block must have a corresponding \`tool_result\` block in the next message.`
const NO_USE = (at: string, id: string) =>
  `${at}: unexpected \`tool_use_id\` found in \`tool_result\` blocks: ${id}. Each \`tool_result\` block must have a corresponding \`tool_use\` block in the previous message.`
const TWO_RESULTS = (at: string, id: string) =>
  `${at}: each tool_use must have a single result. Found multiple \`tool_result\` blocks with id: ${id}`
const EMPTY_MESSAGE = (at: number) =>
  `messages.${at}: all messages must have non-empty content except for the optional final assistant message`
const HALF = 'The request body is not valid JSON: no low surrogate in string'
const BLANK = 'messages: text content blocks must contain non-whitespace text'
const EMPTY = 'messages: text content blocks must be non-empty'
const PREFILL =
  'This model does not support assistant message prefill. The conversation must end with a user message.'
const TOOLS_MISSING =
  'Requests which include `tool_use` or `tool_result` blocks must define tools.'
const NAME = "String should match pattern '^[a-zA-Z0-9_-]{1,128}$'"
// biome-ignore-end format: a table

const tools = (...list: unknown[]) => request(hello, { tools: list })
const [a, b] = [use('a'), use('b')]

/** What is refused and how; undefined for its neighbour that is accepted. */
// biome-ignore format: a table
const REQUESTS: [name: string, body: unknown, error: string | RegExp | undefined][] = [
  ['a plain request', request(hello), undefined],
  ['a model that is a number', request(hello, { model: 7 }), 'model: Input should be a valid string'],
  ['no max_tokens', request(hello, { max_tokens: undefined }), 'max_tokens: Field required'],
  ['max_tokens as text', request(hello, { max_tokens: '100' }), 'max_tokens: Input should be a valid integer'],
  ['no messages', { model: 'm', max_tokens: 1 }, 'messages: Field required'],
  ['an empty messages array', request([]), 'messages: at least one message is required'],

  ['an unknown role', request([...hello, { role: 'tool', content: 'ok' }]), 'messages: Unexpected role "tool". Allowed roles are "user" or "assistant"'],
  ['a system message at the head', request([{ role: 'system', content: 'Be brief.' }, ...hello]), 'messages: Unexpected role "system". Allowed roles are "user" or "assistant"'],
  ['the assistant first', request([assistant('Hello.'), ...hello]), 'messages: first message must use the "user" role'],
  ['no content', request([{ role: 'user' }]), 'messages.0.content: Field required'],
  ['null as content', request([user(null)]), 'messages.0.content: Input should be a valid array'],
  ['a whole reply pushed as a message', request([...hello, { ...assistant('Hi.'), id: 'msg_1' }, ...hello]), 'messages.1.id: Extra inputs are not permitted'],
  ['undefined beside role and content', request([{ ...user('Hi.'), id: undefined }]), undefined],
  ['messages of one role in a row', request([...hello, ...hello]), undefined],

  ['empty text as content', request([user('')]), EMPTY_MESSAGE(0)],
  ['no blocks', request([...hello, assistant([]), ...hello]), EMPTY_MESSAGE(1)],
  ['no blocks from the assistant at the end', request([...hello, assistant([])]), undefined],
  ['white space as content', request([user(' \n')]), BLANK],
  ['an empty text block', request([user([said('Hello.'), said('')])]), EMPTY],
  ['a block without type', request([user([{}])]), 'messages.0.content.0.type: Field required'],
  ['a block of another type', request([user([{ type: 'image', source: {} }])]), undefined],

  ['a call and its result', request(round([a], [result('a')])), undefined],
  ['a call at the end', request([...hello, assistant([a])]), NO_RESULT(1, 'a')],
  ['a call, then words', request(round([a], 'Go on.')), NO_RESULT(2, 'a')],
  ['two calls and one result', request(round([a, b], [result('a')])), NO_RESULT(2, 'b')],
  ['two calls and two results', request(round([a, b], [result('b'), result('a')])), undefined],
  ['results in two messages', request([...round([a, b], [result('a')]), user([result('b')])]), NO_RESULT(2, 'b')],
  ['a result behind text', request(round([a], [said('Now:'), result('a')])), NO_RESULT(2, 'a')],
  ['text behind a result', request(round([a], [result('a'), said('Now go on.')])), undefined],
  ['a result that nobody asked for', request(round([a], [result('a'), result('x')])), NO_USE('messages.2.content.1', 'x')],
  ['a result at the head', request([user([result('a')])]), NO_USE('messages.0.content.0', 'a')],
  ['a result of an older call', request([...round([a], [result('a')]), assistant('Done.'), user([result('a')])]), NO_USE('messages.4.content.0', 'a')],
  ['two results for one call', request(round([a], [result('a'), result('a')])), TWO_RESULTS('messages.2.content.1', 'a')],
  ['an id twice in one message', request(round([a, a], [result('a')])), 'messages.1.content.1: `tool_use` ids must be unique'],
  ['an id again later', request([...round([a], [result('a')]), assistant([a]), user([result('a')])]), 'messages.3.content.0: `tool_use` ids must be unique'],
  ['an input that is text', request(round([use('a', { input: '{}' })], [result('a')])), 'messages.1.content.0.tool_use.input: Input should be an object'],
  ['no input', request(round([use('a', { input: undefined })], [result('a')])), 'messages.1.content.0.tool_use.input: Field required'],
  ['an empty input', request(round([use('a', { input: {} })], [result('a')])), undefined],
  ['an empty error', request(round([a], [result('a', { content: '', is_error: true })])), 'messages.2.content.0.tool_result: content cannot be empty if `is_error` is true'],
  ['an error', request(round([a], [result('a', { content: 'no', is_error: true })])), undefined],
  ['an empty text block in a result', request(round([a], [result('a', { content: [said('')] })])), EMPTY],
  ['blocks in a result', request(round([a], [result('a', { content: [said('ok')] })])), undefined],
  ['a call by the user', request([user([a])]), 'messages.0: `tool_use` blocks can only be in `assistant` messages'],
  ['a result by the assistant', request([...hello, assistant([a]), assistant([result('a')])]), 'messages.2: `tool_result` blocks can only be in `user` messages'],

  ['calls but no tools', request(round([a], [result('a')]), { tools: undefined }), TOOLS_MISSING],
  ['tools that are no list', request(hello, { tools: bash }), 'tools: Input should be a valid array'],
  ['a tool name twice', tools(bash, task, bash), 'tools: Tool names must be unique.'],
  ['a tool without name', tools({ ...bash, name: undefined }), 'tools.0.custom.name: Field required'],
  ['a name with a dot', tools(bash, { ...bash, name: 'a.b' }), `tools.1.custom.name: ${NAME}`],
  ['a name of 129', tools({ ...bash, name: 'x'.repeat(129) }), `tools.0.custom.name: ${NAME}`],
  ['a tool without schema', tools({ name: 'bash' }), 'tools.0.custom.input_schema: Field required'],
  ['a function, which JSON leaves out', tools({ ...bash, run: () => 'ok' }), undefined],
  ['undefined, which JSON leaves out', tools({ ...bash, hint: undefined }), undefined],

  ['the assistant last', request([...hello, assistant('Well,')]), PREFILL],
  ['the user last', request([...hello, assistant('Well,'), user('Go on.')]), undefined],

  ['half a pair at the end of a text', { model: 'm', max_tokens: 1, messages: [user('a\ud83d')] }, HALF],
  ['the other half', { model: 'm', max_tokens: 1, messages: [user('\ude00')] }, HALF],
  ['half a pair in an input', request(round([use('a', { input: { command: 'x\ud83d' } })], [result('a')])), /no low surrogate/],
  ['half a pair in a result', request(round([a], [result('a', { content: '\\\ud83d' })])), /no low surrogate/],
  ['half a pair in a system prompt', request(hello, { system: '\ud83d.' }), /no low surrogate/],
  ['a whole pair', request([user('\ud83d\ude00')]), undefined],
  ['the spelling of half a pair', request([user('\\ud83d')]), undefined],
]

describe('requestError', () => {
  for (const [name, body, error] of REQUESTS) {
    test(`${error ? 'refuses' : 'accepts'} ${name}`, () => {
      const said = requestError(body)
      if (error instanceof RegExp) assert.match(String(said), error)
      else assert.equal(said, error)
    })
  }
})

const message = (content: unknown, more: Json = {}): Json => ({
  id: 'msg_1',
  type: 'message',
  role: 'assistant',
  model: 'm',
  content,
  stop_reason: 'end_turn',
  stop_sequence: null,
  usage: { input_tokens: 10, output_tokens: 5 },
  ...more,
})
const tidied = (given: unknown, known = new Set<string>()): Json =>
  tidyReply(given, known)
const thinking = { type: 'thinking', thinking: 'Hm.', signature: 'xyz' }
const redacted = { type: 'redacted_thinking', data: 'xyz' }
const unknown = { type: 'reasoning', text: '', id: 'a' }
const search = { type: 'server_tool_use', id: 's', name: 'web_search', input: {} }

/** Replies that are well formed, whatever a step may make of them. */
// biome-ignore format: a table
const REPLIES: [name: string, content: unknown[], more?: Json][] = [
  ['a text', [said('Done.')]],
  ['calls', [said('I look.'), a, b], { stop_reason: 'tool_use' }],
  ['thinking before a call', [thinking, a], { stop_reason: 'tool_use' }],
  ['a cut text', [said('Once')], { stop_reason: 'max_tokens' }],
  ['a cut call', [a], { stop_reason: 'max_tokens' }],
  ['a full context', [a], { stop_reason: 'model_context_window_exceeded' }],
  ['a paused turn', [search], { stop_reason: 'pause_turn' }],
  ['a refusal', [said('I cannot.')], { stop_reason: 'refusal' }],
  ['no blocks', []],
  ['nothing but thinking', [thinking], { stop_reason: 'max_tokens' }],
  ['blocks of other kinds', [thinking, redacted, unknown, said('Done.')]],
  ['fields of a later API', [said('Done.')], { container: null, news: [1] }],
  ['a character of two halves', [said('\ud83d\ude00')]],
]

describe('tidyReply leaves as it is', () => {
  for (const [name, content, more] of REPLIES) {
    test(name, () => {
      const given = message(content, more)
      assert.deepEqual(tidied(given), given)
    })
  }
})

describe('tidyReply makes well formed', () => {
  const inputOf = (input: unknown) => [use('a', { input })]
  /** A block's content, then what becomes of it. */
  // biome-ignore format: a table
  const CONTENTS: [name: string, given: unknown, made: unknown[]][] = [
    ['a string', 'Done.', [said('Done.')]],
    ['a list of strings', ['Done.'], [said('Done.')]],
    ['null', null, []],
    ['nothing', undefined, []],
    ['blank texts', [said(''), said('Done.'), said(' \n'), { type: 'text' }, null], [said('Done.')]],
    ['a blank text beside a call', [said(''), a], [a]],
    ['an input as JSON', inputOf('{"command":"ls"}'), [a]],
    ['an empty input', inputOf(''), inputOf({})],
    ['null as input', inputOf(null), inputOf({})],
    ['no input', inputOf(undefined), inputOf({})],
    ['half an input', inputOf('{"command":'), inputOf({ invalid_json: '{"command":' })],
    ['a list as JSON', inputOf('["ls"]'), inputOf({ invalid_json: '["ls"]' })],
    ['a list as input', inputOf(['ls']), inputOf({ invalid_json: '["ls"]' })],
    ['false as input', inputOf(false), inputOf({ invalid_json: 'false' })],
    ['a long input', inputOf('x'.repeat(10_000)), inputOf({ invalid_json: 'x'.repeat(10_000) })],
    ['a call without a name', [use('a', { name: undefined })], [use('a', { name: 'unnamed_tool' })]],
    ['half a pair in an input as JSON', inputOf('{"x":"\\ud83d"}'), inputOf({ x: '\ufffd' })],
  ]
  for (const [name, given, made] of CONTENTS) {
    test(name, () => assert.deepEqual(tidied(message(given)).content, made))
  }

  // biome-ignore format: a table
  const STOPS: [given: unknown, beside: unknown, made: string][] = [
    ['end_turn', a, 'tool_use'],
    ['tool_use', said('Done.'), 'end_turn'],
    ['stop', said('Done.'), 'end_turn'],
    ['stop', a, 'tool_use'],
    ['length', said('Half'), 'max_tokens'],
    ['length', a, 'max_tokens'],
    ['MAX_TOKENS', said('Half'), 'max_tokens'],
    ['tool_calls', a, 'tool_use'],
    ['content_filter', said('I cannot.'), 'refusal'],
    ['content_filter', a, 'refusal'],
    ['constructor', said('Done.'), 'constructor'],
    [null, said('Done.'), 'end_turn'],
    [undefined, a, 'tool_use'],
  ]
  for (const [given, beside, made] of STOPS) {
    test(`stop_reason ${given} beside a ${(beside as Json).type}`, () => {
      const { stop_reason } = tidied(message([beside], { stop_reason: given }))
      assert.equal(stop_reason, made)
    })
  }

  test('a refusal: its calls are not to be run', () => {
    const refused = tidied(message([said('I'), a], { stop_reason: 'refusal' }))
    assert.deepEqual(refused.content, [said('I')])
  })

  test('tokens', () => {
    const tokens = (usage: unknown) => {
      const { input_tokens, output_tokens } = tidied(message('Hi.', { usage })).usage
      return [input_tokens, output_tokens]
    }
    assert.deepEqual(tokens({ input_tokens: 12 }), [12, 0])
    for (const usage of [undefined, null, {}]) assert.deepEqual(tokens(usage), [0, 0])
  })

  test('role, type and usage', () => {
    assert.deepEqual(tidied({ content: 'Done.' }), {
      type: 'message',
      role: 'assistant',
      content: [said('Done.')],
      stop_reason: 'end_turn',
      usage: { input_tokens: 0, output_tokens: 0 },
    })
    assert.equal(tidied(message('Done.', { role: null, type: 'x' })).role, 'assistant')
  })

  test('ids that are missing, empty or repeated', () => {
    const calls = [use(''), use('', { id: undefined }), a, a, b]
    const ids = tidied(message(calls)).content.map((block: Json) => block.id)
    assert.deepEqual([ids[2], ids[4]], ['a', 'b'])
    assert.equal(new Set(ids).size, 5)
    for (const id of ids) assert.match(id, /^[a-zA-Z0-9_-]+$/)
  })

  test('ids that the conversation had before', () => {
    const known = new Set(['a', 'toolu_0', 'toolu_1', 'toolu_2'])
    assert.equal(tidied(message([a]), known).content[0].id, 'toolu_3')
  })

  test('and does not change the reply it was given', () => {
    const given = message([said(''), use('a', { input: '{}' }), use(''), said('\udc00')])
    const before = structuredClone(given)
    tidied(given)
    assert.deepEqual(given, before)
  })
})

describe('tidyReply names', () => {
  // biome-ignore format: a table
  const replies: [name: string, reply: unknown, sentence: string][] = [
    ['an object that is no message', {}, 'the reply was no message: {}'],
    ['a page', '<!DOCTYPE html>\n<p>Hi', 'the reply was no message: <!DOCTYPE html> <p>Hi'],
    ['a list', [said('Hi')], 'the reply was no message: [{"type":"text","text":"Hi"}]'],
    ['null', null, 'the reply was no message: null'],
    ['nothing', undefined, 'the reply was no message: nothing'],
    ["OpenAI's kind of reply", { choices: [{ message: { content: 'Hi' } }] }, 'the reply was no message: {"choices":[{"message":{"content":"Hi"}}]}'],
    ["the API's error", { type: 'error', error: { type: 'overloaded_error', message: 'Overloaded' } }, 'the reply was an error: Overloaded'],
    ['an error', { error: { message: 'No credit' } }, 'the reply was an error: No credit'],
    ['an error that is text', { error: 'No credit' }, 'the reply was an error: No credit'],
    ['another error', { error: { code: 7 } }, 'the reply was an error: {"code":7}'],
  ]
  for (const [name, given, sentence] of replies) {
    test(name, () => {
      assert.throws(() => tidied(given), { message: sentence })
      assert.throws(() => tidied(given), ReplyError)
    })
  }
})

/** What keeps other tests from passing in silence. */
test('the server takes what the API takes, and nothing beyond its script', async (t) => {
  const fails = () => {
    throw new Error('too many')
  }
  const server = await startServer([text('Hi.'), fails], { key: 'key' })
  t.after(server.close)
  const good = { 'x-api-key': 'key', 'anthropic-version': '1' }
  const body = request(hello)
  // biome-ignore format: a table
  const posts: [path: string, headers: Json, body: unknown, status: number, said: RegExp][] = [
    ['/v1/v1/messages', good, body, 404, /^Not Found$/],
    ['/v1/messages/', good, body, 404, /^Not Found$/],
    ['/v1/messages', { 'anthropic-version': '1' }, body, 401, /^x-api-key header is required$/],
    ['/v1/messages', { ...good, 'x-api-key': 'wrong' }, body, 401, /^invalid x-api-key$/],
    ['/v1/messages', { 'x-api-key': 'key' }, body, 400, /^anthropic-version: header is required$/],
    ['/v1/messages', good, {}, 400, /Field required|Input should be/],
    ['/v1/messages', good, request(round([a], 'Go on.')), 400, /^messages\.2: `tool_use` ids/],
    ['/v1/messages', good, body, 200, /^$/],
    ['/v1/messages', good, body, 500, /^the script failed: .*too many/],
    ['/v1/messages', good, body, 500, /^the script has no answer 3$/],
  ]
  for (const [path, headers, body, status, said] of posts) {
    const post = { method: 'POST', headers, body: JSON.stringify(body) }
    const response = await fetch(server.url + path, post)
    assert.equal(response.status, status)
    const { error } = (await response.json()) as Json
    assert.match(error?.message ?? '', said)
  }
  assert.equal(server.refused.length, posts.length - 1)
})
