/** The API's rules, the tidying of replies, and the server that other tests rely on. */

import assert from 'node:assert/strict'
import { existsSync, mkdirSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, test } from 'node:test'
import type { MessageCreateParams } from '@anthropic-ai/sdk/resources/messages'
import { ReplyError } from '../steps/support/base/errors.ts'
import { requestError } from '../steps/support/base/protocol.ts'
import { tidyReply } from '../steps/support/model/reply.ts'
import {
  type Answer,
  calls,
  editStep,
  fail,
  type Handler,
  hangUp,
  type Json,
  makeRoot,
  raw,
  readLane,
  reply,
  runStep,
  type Server,
  stall,
  startServer,
  startStep,
  text,
  wait,
} from './server.ts'

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

const NO_RESULT = (at: number, ids: string) =>
  `messages.${at}: \`tool_use\` ids were found without \`tool_result\` blocks ` +
  `immediately after: ${ids}. Each \`tool_use\` block must have a corresponding ` +
  '`tool_result` block in the next message.'
const NO_USE = (at: string, id: string) =>
  `${at}: unexpected \`tool_use_id\` found in \`tool_result\` blocks: ${id}. Each ` +
  '`tool_result` block must have a corresponding `tool_use` block ' +
  'in the previous message.'
const TWO_RESULTS = (at: string, id: string) =>
  `${at}: each tool_use must have a single result. ` +
  `Found multiple \`tool_result\` blocks with id: ${id}`
const BLANK = 'messages: text content blocks must contain non-whitespace text'
const EMPTY = 'messages: text content blocks must be non-empty'
const EMPTY_MESSAGE = (at: number) =>
  `messages.${at}: all messages must have non-empty content except for the optional ` +
  'final assistant message'
const PREFILL =
  'This model does not support assistant message prefill. ' +
  'The conversation must end with a user message.'
const TOOLS_MISSING =
  'Requests which include `tool_use` or `tool_result` blocks must define tools.'
const NAME = "String should match pattern '^[a-zA-Z0-9_-]{1,128}$'"

const tools = (...list: unknown[]) => request(hello, { tools: list })
const [a, b] = [use('a'), use('b')]

/** What is refused and how; undefined for its neighbour that is accepted. */
const REQUESTS: [name: string, body: unknown, error: string | undefined][] = [
  ['a plain request', request(hello), undefined],
  ['no object', 'Hello.', 'body: Input should be an object'],
  ['no model', request(hello, { model: undefined }), 'model: Field required'],
  [
    'a model that is a number',
    request(hello, { model: 7 }),
    'model: Input should be a valid string',
  ],
  [
    'no max_tokens',
    request(hello, { max_tokens: undefined }),
    'max_tokens: Field required',
  ],
  [
    'max_tokens as text',
    request(hello, { max_tokens: '100' }),
    'max_tokens: Input should be a valid integer',
  ],
  ['no messages', { model: 'm', max_tokens: 1 }, 'messages: Field required'],
  [
    'messages as text',
    { model: 'm', max_tokens: 1, messages: 'Hello.' },
    'messages: Input should be a valid array',
  ],
  ['an empty messages array', request([]), 'messages: at least one message is required'],
  [
    'a key the API does not know',
    request(hello, { response_format: {} }),
    'response_format: Extra inputs are not permitted',
  ],
  [
    'keys the API knows',
    request(hello, { system: 'Be brief.', stream: false, tool_choice: { type: 'none' } }),
    undefined,
  ],

  ['null as a message', request([null]), 'messages.0: Input should be an object'],
  ['no role', request([{ content: 'Hello.' }]), 'messages.0.role: Field required'],
  [
    'an unknown role',
    request([...hello, { role: 'tool', content: 'ok' }]),
    'messages: Unexpected role "tool". Allowed roles are "user" or "assistant"',
  ],
  [
    'a system message at the head',
    request([{ role: 'system', content: 'Be brief.' }, ...hello]),
    'messages: Unexpected role "system". Allowed roles are "user" or "assistant"',
  ],
  [
    'a system message further down',
    request([...hello, { role: 'system', content: 'Be brief.' }]),
    undefined,
  ],
  [
    'the assistant first',
    request([assistant('Hello.'), ...hello]),
    'messages: first message must use the "user" role',
  ],
  ['no content', request([{ role: 'user' }]), 'messages.0.content: Field required'],
  [
    'null as content',
    request([user(null)]),
    'messages.0.content: Input should be a valid array',
  ],
  [
    'a whole reply pushed as a message',
    request([...hello, { ...assistant('Hi.'), id: 'msg_1' }, ...hello]),
    'messages.1.id: Extra inputs are not permitted',
  ],
  ['messages of one role in a row', request([...hello, ...hello]), undefined],

  ['empty text as content', request([user('')]), EMPTY_MESSAGE(0)],
  ['no blocks', request([...hello, assistant([]), ...hello]), EMPTY_MESSAGE(1)],
  [
    'no blocks from the assistant at the end',
    request([...hello, assistant([])]),
    undefined,
  ],
  ['white space as content', request([user(' \n')]), BLANK],
  ['an empty text block', request([user([said('Hello.'), said('')])]), EMPTY],
  ['a text block of white space', request([user([said(' \n')])]), BLANK],
  ['a text block with words', request([user([said(' Hello.\n')])]), undefined],
  [
    'a block that is text',
    request([user([7])]),
    'messages.0.content.0: Input should be an object',
  ],
  [
    'a block without type',
    request([user([{}])]),
    'messages.0.content.0.type: Field required',
  ],
  [
    'a block of another type',
    request([user([{ type: 'image', source: {} }])]),
    undefined,
  ],

  ['a call and its result', request(round([a], [result('a')])), undefined],
  ['a call at the end', request([...hello, assistant([a])]), NO_RESULT(1, 'a')],
  ['a call, then words', request(round([a], 'Go on.')), NO_RESULT(2, 'a')],
  ['two calls and one result', request(round([a, b], [result('a')])), NO_RESULT(2, 'b')],
  [
    'two calls and two results',
    request(round([a, b], [result('b'), result('a')])),
    undefined,
  ],
  [
    'results in two messages',
    request([...round([a, b], [result('a')]), user([result('b')])]),
    NO_RESULT(2, 'b'),
  ],
  [
    'a result behind text',
    request(round([a], [said('Now:'), result('a')])),
    NO_RESULT(2, 'a'),
  ],
  [
    'text behind a result',
    request(round([a], [result('a'), said('Now go on.')])),
    undefined,
  ],
  [
    'a result that nobody asked for',
    request(round([a], [result('a'), result('x')])),
    NO_USE('messages.2.content.1', 'x'),
  ],
  [
    'a result at the head',
    request([user([result('a')])]),
    NO_USE('messages.0.content.0', 'a'),
  ],
  [
    'a result of an older call',
    request([...round([a], [result('a')]), assistant('Done.'), user([result('a')])]),
    NO_USE('messages.4.content.0', 'a'),
  ],
  [
    'two results for one call',
    request(round([a], [result('a'), result('a')])),
    TWO_RESULTS('messages.2.content.1', 'a'),
  ],
  [
    'an id twice in one message',
    request(round([a, a], [result('a')])),
    'messages.1.content.1: `tool_use` ids must be unique',
  ],
  [
    'an id again later',
    request([...round([a], [result('a')]), assistant([a]), user([result('a')])]),
    'messages.3.content.0: `tool_use` ids must be unique',
  ],
  [
    'another id later',
    request([...round([a], [result('a')]), assistant([b]), user([result('b')])]),
    undefined,
  ],
  [
    'an input that is text',
    request(round([use('a', { input: '{}' })], [result('a')])),
    'messages.1.content.0.tool_use.input: Input should be an object',
  ],
  [
    'an input that is a list',
    request(round([use('a', { input: [] })], [result('a')])),
    'messages.1.content.0.tool_use.input: Input should be an object',
  ],
  [
    'no input',
    request(round([use('a', { input: undefined })], [result('a')])),
    'messages.1.content.0.tool_use.input: Field required',
  ],
  [
    'a call without id',
    request(round([use('a', { id: undefined })], [result('a')])),
    'messages.1.content.0.tool_use.id: Field required',
  ],
  [
    'a call without name',
    request(round([use('a', { name: undefined })], [result('a')])),
    'messages.1.content.0.tool_use.name: Field required',
  ],
  ['an empty input', request(round([use('a', { input: {} })], [result('a')])), undefined],
  [
    'an empty error',
    request(round([a], [result('a', { content: '', is_error: true })])),
    'messages.2.content.0.tool_result: content cannot be empty if `is_error` is true',
  ],
  [
    'an error without content',
    request(round([a], [result('a', { content: undefined, is_error: true })])),
    'messages.2.content.0.tool_result: content cannot be empty if `is_error` is true',
  ],
  [
    'an error',
    request(round([a], [result('a', { content: 'no', is_error: true })])),
    undefined,
  ],
  ['an empty result', request(round([a], [result('a', { content: '' })])), undefined],
  [
    'an empty text block in a result',
    request(round([a], [result('a', { content: [said('')] })])),
    EMPTY,
  ],
  [
    'blocks in a result',
    request(round([a], [result('a', { content: [said('ok')] })])),
    undefined,
  ],
  [
    'a call by the user',
    request([user([a])]),
    'messages.0: `tool_use` blocks can only be in `assistant` messages',
  ],
  [
    'a result by the assistant',
    request([...hello, assistant([a]), assistant([result('a')])]),
    'messages.2: `tool_result` blocks can only be in `user` messages',
  ],

  [
    'calls but no tools',
    request(round([a], [result('a')]), { tools: undefined }),
    TOOLS_MISSING,
  ],
  [
    'calls but an empty list',
    request(round([a], [result('a')]), { tools: [] }),
    TOOLS_MISSING,
  ],
  ['no calls and no tools', request(hello, { tools: undefined }), undefined],
  [
    'tools that are no list',
    request(hello, { tools: bash }),
    'tools: Input should be a valid array',
  ],
  ['a tool that is text', tools('bash'), 'tools.0: Input should be an object'],
  ['a tool name twice', tools(bash, task, bash), 'tools: Tool names must be unique.'],
  ['two tools', tools(bash, task), undefined],
  [
    'a tool without name',
    tools({ ...bash, name: undefined }),
    'tools.0.custom.name: Field required',
  ],
  [
    'a name with a dot',
    tools(bash, { ...bash, name: 'a.b' }),
    `tools.1.custom.name: ${NAME}`,
  ],
  ['an empty name', tools({ ...bash, name: '' }), `tools.0.custom.name: ${NAME}`],
  [
    'a name of 129',
    tools({ ...bash, name: 'x'.repeat(129) }),
    `tools.0.custom.name: ${NAME}`,
  ],
  ['a name of 128', tools({ ...bash, name: 'x'.repeat(128) }), undefined],
  [
    'a tool without schema',
    tools({ name: 'bash' }),
    'tools.0.custom.input_schema: Field required',
  ],
  [
    'a schema without type',
    tools({ ...bash, input_schema: {} }),
    "tools.0.custom.input_schema.type: Input should be 'object'",
  ],
  [
    'a schema of a list',
    tools({ ...bash, input_schema: { type: 'array' } }),
    "tools.0.custom.input_schema.type: Input should be 'object'",
  ],
  [
    'a key that tools do not have',
    tools({ ...bash, parameters: {} }),
    'tools.0.custom.parameters: Extra inputs are not permitted',
  ],
  ['a function, which JSON leaves out', tools({ ...bash, run: () => 'ok' }), undefined],
  ['undefined, which JSON leaves out', tools({ ...bash, hint: undefined }), undefined],
  [
    "one of the API's own tools",
    tools({ type: 'bash_20250124', name: 'bash' }),
    undefined,
  ],

  ['the assistant last', request([...hello, assistant('Well,')]), PREFILL],
  ['the user last', request([...hello, assistant('Well,'), user('Go on.')]), undefined],
  [
    'a paused turn last',
    request([
      ...hello,
      assistant([said('I look.'), { type: 'server_tool_use', id: 's' }]),
    ]),
    undefined,
  ],
  [
    'a turn paused behind a result of the API',
    request([
      ...hello,
      assistant([{ type: 'web_search_tool_result', tool_use_id: 's' }]),
    ]),
    undefined,
  ],
]

describe('requestError', () => {
  for (const [name, body, error] of REQUESTS) {
    test(`${error ? 'refuses' : 'accepts'} ${name}`, () => {
      assert.equal(requestError(body), error)
    })
  }

  test('is linear: sixteen times the messages do not take sixty times as long', () => {
    const long = (rounds: number) =>
      request([
        ...hello,
        ...Array.from({ length: rounds }, (_, i) => [
          assistant([said('I look.'), use(`id_${i}`)]),
          user([result(`id_${i}`)]),
        ]).flat(),
      ])
    /** The processor's time in ms, for a busy machine's clock tells nothing. */
    const took = (body: Json) => {
      const start = process.cpuUsage()
      for (let i = 0; i < 15; i++) assert.equal(requestError(body), undefined)
      return process.cpuUsage(start).user / 15 / 1000
    }
    took(long(500))
    const ratio = took(long(8000)) / took(long(500))
    assert(
      ratio < 60,
      `sixteen times the messages took ${ratio.toFixed(1)} times as long`,
    )
    // One message with many calls, too.
    const ids = Array.from({ length: 20_000 }, (_, i) => `id_${i}`)
    const wide = round(
      ids.map((id) => use(id)),
      ids.map((id) => result(id)),
    )
    assert(took(request(wide)) < 1000, 'many calls in one message took too long')
  })
})

const asked = request(hello, { tools: [bash, task] }) as MessageCreateParams
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
const tidied = (given: unknown, body = asked): Json => tidyReply(given, body)
const thinking = { type: 'thinking', thinking: 'Hm.', signature: 'xyz' }

describe('tidyReply leaves a well-formed reply as it is', () => {
  const replies: [string, Json][] = [
    ['a text', message([said('Done.')])],
    ['a text with citations', message([{ ...said('Done.'), citations: null }])],
    ['calls', message([said('I look.'), a, b], { stop_reason: 'tool_use' })],
    ['thinking before a call', message([thinking, a], { stop_reason: 'tool_use' })],
    ['a cut text', message([said('Once')], { stop_reason: 'max_tokens' })],
    ['a cut call', message([a], { stop_reason: 'max_tokens' })],
    ['a full context', message([a], { stop_reason: 'model_context_window_exceeded' })],
    ['a stop sequence', message([said('1')], { stop_reason: 'stop_sequence' })],
    [
      'a paused turn',
      message([{ type: 'server_tool_use' }], { stop_reason: 'pause_turn' }),
    ],
    ['a paused turn without blocks', message([], { stop_reason: 'pause_turn' })],
    ['fields of a later API', message([said('Done.')], { container: null, news: [1] })],
  ]
  for (const [name, given] of replies) {
    test(name, () => {
      const before = structuredClone(given)
      assert.deepEqual(tidied(given), before)
      assert.deepEqual(given, before)
    })
  }
})

describe('tidyReply mends', () => {
  const content = (given: Json) => tidied(given).content
  const input = (value: unknown) =>
    content(message([use('a', { input: value })]))[0].input
  const stop = (reason: unknown, blocks: unknown[] = [said('Done.')]) =>
    tidied(message(blocks, { stop_reason: reason })).stop_reason

  test('content that is a text', () => {
    assert.deepEqual(content(message('Done.')), [said('Done.')])
    assert.deepEqual(content(message(['Done.'])), [said('Done.')])
  })

  test('empty texts', () => {
    const given = message([said(''), said('Done.'), said(' \n'), { type: 'text' }, null])
    assert.deepEqual(content(given), [said('Done.')])
    assert.deepEqual(content(message([said(''), a])), [a])
  })

  test('inputs', () => {
    assert.deepEqual(input('{"command":"ls"}'), { command: 'ls' })
    for (const nothing of ['', null, undefined]) assert.deepEqual(input(nothing), {})
    assert.deepEqual(input('{"command":'), { invalid_json: '{"command":' })
    assert.deepEqual(input('["ls"]'), { invalid_json: '["ls"]' })
    assert.deepEqual(input(['ls']), { invalid_json: '["ls"]' })
    assert.deepEqual(input(false), { invalid_json: 'false' })
    const long = 'x'.repeat(10_000)
    assert.deepEqual(input(long), { invalid_json: long })
  })

  test('ids that are missing, empty or repeated', () => {
    const given = message([
      use(''),
      { ...a, id: undefined },
      use('a'),
      use('a'),
      use('b'),
    ])
    const ids = content(given).map((block: Json) => block.id)
    assert.deepEqual([ids[2], ids[4]], ['a', 'b'])
    assert.equal(new Set(ids).size, 5)
    for (const id of ids) assert.match(id, /^[a-zA-Z0-9_-]+$/)
  })

  test('ids that the conversation has used, whatever they look like', () => {
    const used = ['a', 'toolu_0', 'toolu_1', 'toolu_2', 'toolu_3', 'toolu_4', 'toolu_5']
    const history = round(
      used.map((id) => use(id)),
      used.map((id) => result(id)),
    )
    const [{ id }] = tidied(message([a]), request(history) as MessageCreateParams).content
    assert.equal(used.includes(id), false)
    assert.equal(
      requestError(request([...history, assistant([use(id)]), user([result(id)])])),
      undefined,
    )
  })

  test('a call without a name', () => {
    const [call] = content(message([use('a', { name: undefined })]))
    assert.deepEqual(call, use('a', { name: 'unnamed_tool' }))
  })

  test('stop_reason, by the blocks', () => {
    assert.equal(stop('end_turn', [a]), 'tool_use')
    assert.equal(stop('stop_sequence', [a]), 'tool_use')
    assert.equal(stop('tool_use'), 'end_turn')
    assert.equal(stop('max_tokens', [a]), 'max_tokens')
  })

  test('tokens are whole numbers', () => {
    const tokens = (usage: unknown) => {
      const { input_tokens, output_tokens } = tidied(message('Hi.', { usage })).usage
      return [input_tokens, output_tokens]
    }
    assert.deepEqual(tokens({ input_tokens: '12', output_tokens: '05' }), [12, 5])
    const odd = [undefined, null, 'many', [], {}, { input_tokens: {}, output_tokens: -5 }]
    for (const usage of odd) assert.deepEqual(tokens(usage), [0, 0])
  })

  test('a paused turn and what follows are one reply', () => {
    const paused = message([said('It is there.'), use('', { id: undefined })], {
      stop_reason: 'pause_turn',
    })
    const before = tidyReply({ ...paused, content: [said('It is there.')] }, asked)
    assert.equal(before.stop_reason, 'pause_turn')
    const whole = tidyReply(message([]), asked, before)
    assert.deepEqual(whole.content, [said('It is there.')])
    assert.deepEqual(whole.usage, { input_tokens: 20, output_tokens: 10 })
    // A call must be answered, whatever the stop_reason says.
    const called = tidyReply(paused, asked)
    assert.equal(called.stop_reason, 'tool_use')
    const ids = tidyReply(message([use('', { id: undefined })]), asked, called)
      .content.map((block) => (block as Json).id)
      .filter(Boolean)
    assert.deepEqual(ids, ['toolu_0', 'toolu_1'])
  })

  test("stop_reason, from OpenAI's words", () => {
    assert.equal(stop('stop'), 'end_turn')
    assert.equal(stop('stop', [a]), 'tool_use')
    assert.equal(stop('length'), 'max_tokens')
    assert.equal(stop('length', [a]), 'max_tokens')
    assert.equal(stop('STOP'), 'end_turn')
    assert.equal(stop('MAX_TOKENS'), 'max_tokens')
    assert.equal(stop('constructor'), 'constructor')
    assert.equal(stop('tool_calls', [a]), 'tool_use')
    assert.equal(stop('tool_calls'), 'end_turn')
  })

  test('stop_reason, where there is none', () => {
    for (const nothing of [null, undefined]) {
      assert.equal(stop(nothing), 'end_turn')
      assert.equal(stop(nothing, [a]), 'tool_use')
    }
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

  test('nothing about blocks it does not know: the same objects, in place', () => {
    const redacted = { type: 'redacted_thinking', data: 'xyz' }
    const unknown = { type: 'reasoning', text: '', id: 'a' }
    const blocks = content(message([thinking, said(''), redacted, a, unknown]))
    for (const [i, block] of [thinking, redacted, null, unknown].entries()) {
      if (block) assert.equal(blocks[i], block)
    }
    assert.equal(blocks.length, 4)
  })

  test('so that the reply can go back to the API', () => {
    const bent = message([said(' '), use('', { input: null }), use('', { input: '[' })])
    const { content: blocks } = tidied(bent)
    const results = blocks.map(({ id }: Json) => result(id))
    assert.equal(requestError(request(round(blocks, results))), undefined)
  })

  test('and never the request, nor the reply it was given', () => {
    const body = request(round([a], [result('a')])) as MessageCreateParams
    const given = message([said(''), use('a', { input: '{}' }), use('')])
    const before = structuredClone([body, given])
    tidied(given, body)
    assert.deepEqual([body, given], before)
  })
})

describe('tidyReply names what it cannot mend', () => {
  const empty = (reason: string) => `the reply was empty (stop_reason ${reason})`
  const refusal = (reason: string) =>
    `the model refused to answer (stop_reason ${reason})`
  const asText = (name: string, words: string) =>
    `the model wrote its call of ${name} as text: ${words}`
  const BASH = '{"name": "bash", "arguments": {"command": "ls"}}'

  const replies: [name: string, reply: unknown, sentence: string][] = [
    ['an object that is no message', {}, 'the reply was no message: {}'],
    [
      'a page',
      '<!DOCTYPE html>\n<p>Hi',
      'the reply was no message: <!DOCTYPE html> <p>Hi',
    ],
    ['a list', [said('Hi')], 'the reply was no message: [{"type":"text","text":"Hi"}]'],
    ['null', null, 'the reply was no message: null'],
    ['nothing', undefined, 'the reply was no message: nothing'],
    [
      "OpenAI's kind of reply",
      { choices: [{ message: { content: 'Hi' } }] },
      'the reply was no message: {"choices":[{"message":{"content":"Hi"}}]}',
    ],
    [
      "the API's error",
      { type: 'error', error: { type: 'overloaded_error', message: 'Overloaded' } },
      'the reply was an error: Overloaded',
    ],
    [
      'an error',
      { error: { message: 'No credit' } },
      'the reply was an error: No credit',
    ],
    [
      'an error that is text',
      { error: 'No credit' },
      'the reply was an error: No credit',
    ],
    ['another error', { error: { code: 7 } }, 'the reply was an error: {"code":7}'],
    ['no blocks', message([]), empty('end_turn')],
    ['null as content', message(null), empty('end_turn')],
    ['no content', message(undefined, { stop_reason: 'stop' }), empty('end_turn')],
    ['blank texts', message([said(' '), said('')]), empty('end_turn')],
    [
      'nothing but thinking',
      message([thinking]),
      'the reply held neither text nor a call, only thinking (stop_reason end_turn)',
    ],
    [
      'tool_use without a call',
      message([], { stop_reason: 'tool_use' }),
      empty('tool_use'),
    ],
    [
      'thinking that used up max_tokens',
      message([thinking], { stop_reason: 'max_tokens' }),
      'the reply was cut by max_tokens before any text',
    ],
    ['a refusal', message([], { stop_reason: 'refusal' }), refusal('refusal')],
    [
      'a refusal that says why',
      message([said('I cannot.')], { stop_reason: 'refusal' }),
      `${refusal('refusal')}: I cannot.`,
    ],
    [
      'a refusal with a call',
      message([a], { stop_reason: 'content_filter' }),
      refusal('content_filter'),
    ],
    ['a call as JSON', message(BASH), asText('bash', BASH)],
    [
      'a call as JSON in a fence',
      message(`\`\`\`json\n${BASH}\n\`\`\``),
      asText('bash', `\`\`\`json ${BASH} \`\`\``),
    ],
    [
      'calls as a list',
      message('[{"name":"task","input":{"prompt":"x"}}]'),
      asText('task', '[{"name":"task","input":{"prompt":"x"}}]'),
    ],
    [
      'a call as JSON with parameters',
      message('{"name":"task","parameters":{}}'),
      asText('task', '{"name":"task","parameters":{}}'),
    ],
  ]
  const WRITTEN = [
    `I look.\n<tool_call>\n${BASH}\n</tool_call>`,
    '<tool_call>bash\n<arg_key>command</arg_key><arg_value>ls</arg_value></tool_call>',
    '<tool_call>\n<function=bash>\n<parameter=command>ls</parameter>',
    '<function_calls>\n<invoke name="bash">\n<parameter name="command">ls</parameter>',
    '<invoke name="bash"><parameter name="command">ls</parameter></invoke>',
    '<minimax:tool_call>\n<invoke name="bash">',
    '[TOOL_CALLS][{"name": "bash", "arguments": {}}]',
    '[TOOL_CALLS]bash{"command": "ls"}',
    '<|tool_calls_section_begin|><|tool_call_begin|>functions.bash:0<|tool_call_end|>',
    '<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>bash',
    '<｜DSML｜function_calls><｜DSML｜invoke name="bash">',
    `<|python_tag|>${BASH}`,
    '<|channel|>commentary to=functions.bash <|message|>{"command": "ls"}',
    `I will run the test.\n\n${BASH}`,
    `I will run the test:\n\n\`\`\`json\n${BASH}\n\`\`\``,
    `${BASH}\n${BASH}`,
    `{"type": "function", "function": ${BASH}}`,
    `{"tool_calls": [{"function": ${BASH}}]}`,
  ]
  for (const words of WRITTEN) {
    replies.push([words, message(words), asText('bash', words.replace(/\s+/g, ' '))])
  }

  for (const [name, given, sentence] of replies) {
    test(name, () => {
      assert.throws(() => tidied(given), { message: sentence })
      assert.throws(() => tidied(given), ReplyError)
    })
  }

  test('but takes no talk about calls for one', () => {
    const fenced = `\`\`\`xml\n<tool_call>${BASH}</tool_call>\n\`\`\``
    const talk = [
      `It now sees calls that a model writes as text:\n\n${fenced}\n\nNote 42`,
      `Such a call is left alone:\n\n${fenced}`,
      'Qwen writes <function=bash> where Claude sends a block; see the README',
      `<tool_call>${BASH}</tool_call>\n\nThis is what the template of bash emits.`,
      'The agent writes `<invoke name="bash">` where it should call bash.',
      'A <tool_call> marker shows up when the task is handed over as text.',
      `<tool_call>{"name": "browser", "arguments": {}}</tool_call> is not offered here.`,
      `bash takes ${BASH}.`,
      '{"name": "bash", "description": "Runs a command."}',
      '{"name": "my-package", "input": "src"}',
      '[1, null, "bash"]',
    ]
    for (const words of talk)
      assert.deepEqual(tidied(message(words)), message([said(words)]))
    const toolless = request(hello, { tools: undefined }) as MessageCreateParams
    assert.deepEqual(tidied(message(BASH), toolless), message([said(BASH)]))
    const called = message([said(BASH), a], { stop_reason: 'tool_use' })
    assert.deepEqual(tidied(called), called)
  })
})

describe('the server', { timeout: 20_000 }, () => {
  const headers = { 'x-api-key': 'key', 'anthropic-version': '2023-06-01' }
  const post = (server: Server, body: unknown, more: Json = {}) =>
    fetch(`${server.url}${more.path ?? '/v1/messages'}`, {
      method: 'POST',
      headers,
      body: typeof body === 'string' ? body : JSON.stringify(body),
      ...more,
    })
  const json = async (response: Promise<Response>): Promise<Json> =>
    (await (await response).json()) as Json
  const start = async (
    t: { after: (done: () => Promise<void>) => void },
    script: Answer[] | Handler,
    options?: Parameters<typeof startServer>[1],
  ) => {
    const server = await startServer(script, options)
    t.after(server.close)
    return server
  }

  test('answers in order, records, and says when the script is over', async (t) => {
    const script = [text('Hi.'), calls({ name: 'bash' }, { text: 'I look.', model: 'x' })]
    const server = await start(t, script)
    const first = await json(post(server, request(hello)))
    assert.deepEqual(first, {
      ...message([said('Hi.')], { id: 'msg_0' }),
      usage: { input_tokens: 10, output_tokens: 5 },
    })
    const second = await json(post(server, request(hello)))
    const call = { type: 'tool_use', id: 'toolu_1_1', name: 'bash', input: {} }
    assert.deepEqual(second.content, [said('I look.'), call])
    assert.deepEqual([second.stop_reason, second.model], ['tool_use', 'x'])
    assert.equal(server.refused.length, 0)

    const third = await post(server, request(hello))
    assert.equal(third.status, 500)
    assert.equal(third.headers.get('x-should-retry'), 'false')
    assert.equal(server.refused[0].message, 'the script has no answer 3')
    assert.deepEqual(server.requests[2].body, request(hello))
    assert.equal(server.requests[0].headers['x-api-key'], 'key')
    const times = server.requests.map(({ at }) => at)
    assert.deepEqual(
      times.toSorted((x, y) => x - y),
      times,
    )
  })

  test('asks a function, which sees the body and the number', async (t) => {
    const server = await start(t, ({ model }, n) => text(`${model} ${n}`))
    await post(server, request(hello))
    const answer = await json(post(server, request(hello)))
    assert.equal(answer.content[0].text, 'm 1')
  })

  test('tells a function that throws', async (t) => {
    const server = await start(t, () => {
      throw new Error('too many')
    })
    assert.equal((await post(server, request(hello))).status, 500)
    assert.match(server.refused[0].message, /the script failed: .*too many/)
  })

  test('is strict', async (t) => {
    const server = await start(t, [text('Hi.')])
    const refusals: [unknown, Json, number, string, string][] = [
      [request(hello), { path: '/v1/v1/messages' }, 404, 'not_found_error', 'Not Found'],
      [request(hello), { path: '/v1/messages/' }, 404, 'not_found_error', 'Not Found'],
      [
        request(hello),
        { method: 'PUT' },
        405,
        'invalid_request_error',
        'Method Not Allowed',
      ],
      [
        request(hello),
        { headers: { 'anthropic-version': '1' } },
        401,
        'authentication_error',
        'x-api-key header is required',
      ],
      [
        request(hello),
        { headers: { 'x-api-key': 'key' } },
        400,
        'invalid_request_error',
        'anthropic-version: header is required',
      ],
      ['{', {}, 400, 'invalid_request_error', 'The request body is not valid JSON'],
      [
        request(hello, { stream: true }),
        {},
        400,
        'invalid_request_error',
        'stream: this server does not stream',
      ],
      [
        request(round([a], 'Go on.')),
        {},
        400,
        'invalid_request_error',
        NO_RESULT(2, 'a'),
      ],
    ]
    for (const [body, more, status, type, words] of refusals) {
      const response = await post(server, body, more)
      assert.equal(response.status, status)
      assert.deepEqual(await response.json(), {
        type: 'error',
        error: { type, message: words },
      })
    }
    assert.deepEqual(
      server.refused.map((refusal) => refusal.message),
      refusals.map(([, , , , words]) => words),
    )
    // Nothing of that has used up the script.
    assert.equal((await post(server, request(hello))).status, 200)
    assert.equal(server.requests.length, 6)
  })

  test('checks the credential it is told to', async (t) => {
    const tried = [
      { 'x-api-key': 'right' },
      { 'x-api-key': 'wrong' },
      { authorization: 'Bearer right' },
      { authorization: 'Bearer wrong' },
      { 'x-api-key': 'wrong', authorization: 'Bearer right' },
    ]
    const expected = {
      any: [200, 401, 200, 401, 200],
      'x-api-key': [200, 401, 401, 401, 401],
      bearer: [401, 401, 200, 401, 200],
    }
    for (const auth of ['any', 'x-api-key', 'bearer'] as const) {
      const server = await start(t, () => text('Hi.'), { auth, key: 'right' })
      const statuses = []
      for (const credential of tried) {
        const given = { ...credential, 'anthropic-version': '2023-06-01' }
        statuses.push((await post(server, request(hello), { headers: given })).status)
      }
      assert.deepEqual(statuses, expected[auth])
    }
  })

  test('fails, sends any bytes, and bends the protocol', async (t) => {
    const server = await start(t, [
      fail(529, 'overloaded_error', 'Overloaded', { 'retry-after': '7' }),
      raw(200, '<html>', { 'content-type': 'text/html' }),
      raw(200, Buffer.from([0xff, 0xfe])),
      reply([said('')], { stop_reason: null }),
    ])
    const failed = await post(server, request(hello))
    assert.equal(failed.status, 529)
    assert.equal(failed.headers.get('retry-after'), '7')
    const error = { type: 'overloaded_error', message: 'Overloaded' }
    assert.deepEqual(await failed.json(), { type: 'error', error })
    const page = await post(server, request(hello))
    assert.equal(page.headers.get('content-type'), 'text/html')
    assert.equal(await page.text(), '<html>')
    const bytes = new Uint8Array(await (await post(server, request(hello))).arrayBuffer())
    assert.deepEqual([...bytes], [0xff, 0xfe])
    const bent = await json(post(server, request(hello)))
    assert.deepEqual([bent.content, bent.stop_reason], [[said('')], null])
    assert.deepEqual(server.refused, [])
  })

  test('hangs up before an answer, and in the middle of one', async (t) => {
    const server = await start(t, [hangUp(), hangUp('{"id":')])
    await assert.rejects(post(server, request(hello)), /fetch failed/)
    const half = await post(server, request(hello))
    assert.equal(half.status, 200)
    await assert.rejects(half.text(), /terminated/)
  })

  test('stalls until it is closed, and closes at once', async (t) => {
    const server = await start(t, [stall(), wait(60_000, text('Late.')), text('Hi.')])
    const open = [post(server, request(hello)), post(server, request(hello))]
    const ends = Promise.allSettled(open)
    while (server.requests.length < 2) await new Promise((done) => setTimeout(done, 5))
    assert.equal((await post(server, request(hello))).status, 200)
    const before = performance.now()
    await server.close()
    await server.close()
    for (const { status } of await ends) assert.equal(status, 'rejected')
    const took = performance.now() - before
    assert(took < 10_000, `closing took ${took} ms`)
  })

  test('waits', async (t) => {
    const server = await start(t, [wait(50, text('Late.'))])
    const before = performance.now()
    assert.equal((await post(server, request(hello))).status, 200)
    const took = performance.now() - before
    assert(took > 45, `the answer came after ${took} ms`)
  })
})

describe('a step as a process', { concurrency: true, timeout: 20_000 }, () => {
  const write = (root: string, source: string) =>
    writeFileSync(join(root, 'steps', 'probe.ts'), source)

  test('sees its own folder, a lean environment, and what is piped in', async (t) => {
    const root = makeRoot(t)
    write(
      root,
      `import { text } from 'node:stream/consumers'
import { readFileSync } from 'node:fs'
import '@anthropic-ai/sdk/version'
const input: string = await text(process.stdin)
const dotenv = readFileSync('.env', 'utf8')
console.log(JSON.stringify({ cwd: process.cwd(), env: process.env, input, dotenv }))
console.error(process.argv.slice(2).join())
process.exitCode = 3`,
    )
    process.env.ANTHROPIC_API_KEY = 'from-the-shell'
    t.after(() => delete process.env.ANTHROPIC_API_KEY)
    const run = await runStep({
      step: 'probe',
      args: ['one', '--two'],
      env: { MODEL_ID: 'm' },
      dotenv: 'A=1\n',
      stdin: 'Hello.\n',
      root,
    })
    assert.deepEqual([run.code, run.signal, run.root], [3, null, root])
    assert.equal(run.stderr, 'one,--two\n')
    const seen = JSON.parse(run.stdout)
    assert.deepEqual([seen.cwd, seen.input, seen.dotenv], [root, 'Hello.\n', 'A=1\n'])
    assert.equal(seen.env.HOME, root)
    assert.equal(seen.env.MODEL_ID, 'm')
    const extra = Object.keys(seen.env).filter((name) =>
      /ANTHROPIC|^NODE_|^npm_/.test(name),
    )
    assert.deepEqual(extra, [])
  })

  test('can be waited for, and gets signals', async (t) => {
    const root = makeRoot(t)
    write(root, "console.log('ready')\nsetInterval(() => {}, 1000)")
    const { child, output, result: ended } = startStep({ step: 'probe', root })
    await output('ready')
    child.kill('SIGTERM')
    const run = await ended
    assert.deepEqual([run.code, run.signal, run.stdout], [null, 'SIGTERM', 'ready\n'])
  })

  test('is killed when it does not end', async (t) => {
    const root = makeRoot(t)
    write(root, 'setInterval(() => {}, 1000)')
    const {
      child,
      output,
      result: ended,
    } = startStep({ step: 'probe', root, timeout: 900 })
    await assert.rejects(output('never'), /probe did not end in 900 ms/)
    await assert.rejects(ended, /did not end/)
    assert.equal(child.killed, true)
  })

  test('leaves nothing behind, and node_modules alone', () => {
    const cleanups: (() => void)[] = []
    const root = makeRoot({ after: (done) => cleanups.push(done) })
    assert.equal(existsSync(join(root, 'node_modules', 'tsx')), true)
    editStep(root, '01-agent-loop', 'openSession', 'openSession', 2)
    assert.throws(
      () => editStep(root, '01-agent-loop', 'nowhere', ''),
      /has 0 times, not 1/,
    )
    for (const done of cleanups) done()
    assert.equal(existsSync(root), false)
    assert.equal(existsSync(join(import.meta.dirname, '..', 'node_modules', 'tsx')), true)
  })

  test('readLane takes a file apart, and refuses a torn one', (t) => {
    const root = makeRoot(t)
    mkdirSync(join(root, 'logs', 'x'))
    const lines = [
      { level: 'info', step: 'x', lane: 'parent', tools: [] },
      { level: 'info', role: 'user', content: 'Hello.' },
      { level: 'warn', event: 'no_answer' },
      {
        level: 'info',
        role: 'assistant',
        content: [said('Hi.')],
        stop_reason: 'end_turn',
      },
    ]
    const file = lines.map((line) => `${JSON.stringify(line)}\n`).join('')
    writeFileSync(join(root, 'logs', 'x', 'parent.log'), file)
    assert.deepEqual(readLane(root, 'logs/x/parent.log'), {
      header: lines[0],
      messages: [user('Hello.'), assistant([said('Hi.')])],
      events: [lines[2]],
      lines,
    })
    writeFileSync(join(root, 'logs', 'x', 'parent.log'), file.slice(0, -1))
    assert.throws(() => readLane(root, 'logs/x/parent.log'), /the last line is torn/)
  })
})
