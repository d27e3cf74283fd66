/** Replies that bend the protocol, and the ways in which a prompt comes in. */
import assert from 'node:assert/strict'
import { describe, test } from 'node:test'
import {
  about,
  assertReplays,
  byPrompt,
  envFile,
  laneOf,
  promptOf,
  resultsIn,
  runLive,
  serve,
} from './live.ts'
import { calls, type Json, makeRoot, raw, reply, startStep, text } from './server.ts'

const use = (command: string, fields: Json = {}) => {
  return { type: 'tool_use', name: 'bash', input: { command }, ...fields }
}
const said = (words: string) => ({ type: 'text', text: words })
const THINKING = [
  { type: 'thinking', thinking: 'Hm: "é" \\ \u2028', signature: 'EqQB+/==' },
  { type: 'redacted_thinking', data: 'EmwKAhgB' },
  { type: 'text', text: 'I look.', citations: null },
]
const [HM] = THINKING
const SEARCH = { type: 'server_tool_use', id: 's', name: 'web_search', input: {} }
const IN_JSON = 'Like this:\n\n{"name": "bash", "arguments": {"command": "ls"}}'
const IN_TAGS = '<tool_call>{"name": "bash", "arguments": {}}</tool_call>'
const plain = { 'content-type': 'text/plain' }
const so = text('So.')

/** A prompt and the replies to it. */
// biome-ignore format: a table
const SCRIPTS = {
  string: [raw(200, { role: 'assistant', content: 'Just text.' })],
  'text/plain': [raw(200, { role: 'assistant', content: [said('Plain.')] }, plain)],
  'a call in JSON': [text(IN_JSON)],
  'a call in tags': [text(IN_TAGS)],
  'end_turn beside a call': [calls(use('echo run'), { stop_reason: 'end_turn' }), so],
  'tool_use without a call': [text('No call.', { stop_reason: 'tool_use' })],
  'blank beside a call': [reply([said(''), use('echo on')]), so],
  thinking: [reply([...THINKING, use('echo on')]), so],
  'half a pair': [reply([said('a\ud83d'), use('printf %s "b\ud83d"')]), text('\ude00')],
  'json input': [calls({ name: 'bash', input: '{"command": "echo json"}' }), so],
  'no object': [calls(...['echo', [1], null].map((input) => ({ name: 'bash', input }))), so],
  'same ids': [calls(use('echo a', { id: 'same' }), use('echo b', { id: 'same' })), calls(use('echo c', { id: 'same' })), so],
  'no ids': [calls(use('echo a', { id: '' }), use('echo b', { id: null })), so],
  last: [text('Goodbye.')],
}
/** Prompts whose replies end early or are empty: what is told, and the event if any. */
// biome-ignore format: a table
const EARLY: [prompt: string, answer: ReturnType<typeof raw>, told: string, event?: Json][] = [
  ['cut text', text('Half a sen', { stop_reason: 'max_tokens' }), 'The answer ended early: max_tokens.'],
  ['cut to nothing', reply([HM], { stop_reason: 'max_tokens' }), 'The answer ended early: max_tokens.', { stop_reason: 'max_tokens', content: [HM] }],
  ['refusal', text('I cannot.', { stop_reason: 'refusal' }), 'The answer ended early: refusal.'],
  ['refusal in silence', reply([], { stop_reason: 'content_filter' }), 'The answer ended early: refusal.', { stop_reason: 'refusal' }],
  ['pause', reply([SEARCH], { stop_reason: 'pause_turn' }), 'The answer ended early: pause_turn.', { stop_reason: 'pause_turn', content: [SEARCH] }],
  ['null', raw(200, { role: 'assistant', content: null }), "The model's last reply was empty.", { stop_reason: 'end_turn' }],
  ['empty', reply([], { stop_reason: 'tool_use' }), "The model's last reply was empty.", { stop_reason: 'end_turn' }],
  ['blank', reply([said(' \n')]), "The model's last reply was empty.", { stop_reason: 'end_turn' }],
  ['thinking only', reply([HM]), "The model's last reply was empty.", { stop_reason: 'end_turn', content: [HM] }],
]

test('replies that bend the protocol are tidied, or handed to the step', async (t) => {
  const early = Object.fromEntries(EARLY.map(([prompt, answer]) => [prompt, [answer]]))
  const scripts = { ...early, ...SCRIPTS }
  const stdin = `${Object.keys(scripts).join('\n')}\n`
  const run = await runLive(t, byPrompt(scripts), { stdin })
  const lane = laneOf(run)
  const asked = (prompt: string) => about(run.requests, prompt)
  /** What was logged between this prompt and the next. */
  const logged = (prompt: string) => {
    const start = lane.lines.findIndex(({ content }) => content === prompt) + 1
    const isPrompt = ({ content }: Json) => typeof content === 'string'
    return lane.lines.slice(
      start,
      lane.lines.findIndex((l, i) => i >= start && isPrompt(l)),
    )
  }
  const outputs = (prompt: string, n = 1) =>
    resultsIn(asked(prompt)[n]).map(({ content, is_error }) => [content.trim(), is_error])

  await t.test('what ends early or is empty is one line each, and no message', () => {
    const told = EARLY.map(([, , line]) => line)
    assert.deepEqual(run.stderr.trim().split('\n'), told)
    assert.equal(run.code, 1)
    for (const [prompt, , , event] of EARLY) {
      const [{ level, usage, ...line }, ...more] = logged(prompt)
      if (event) assert.deepEqual(line, { event: 'empty_reply', ...event })
      else assert.equal(line.role, 'assistant')
      assert.equal(level, event ? 'warn' : 'info')
      assert.equal(typeof usage.output_tokens, 'number')
      assert.equal(more.length, 0)
    }
    assert.match(run.stdout, /\nHalf a sen\n/)
    assert.match(run.stdout, /\nI cannot\.\n/)
  })

  await t.test('a text is an answer, whatever it quotes', () => {
    for (const words of ['Just text.', 'Plain.', IN_JSON, IN_TAGS]) {
      assert(run.stdout.includes(`\n${words}\n`), words)
    }
    assert.deepEqual(logged('string')[0].content, [said('Just text.')])
    // It is told all the same, and nothing of it is run.
    for (const prompt of ['a call in JSON', 'a call in tags']) {
      assert.equal(asked(prompt).length, 1)
      const event = { level: 'warn', event: 'call_as_text', tool: 'bash' }
      assert.deepEqual(logged(prompt).slice(1), [event])
    }
    assert.match(run.stdout, /^parent wrote a call of bash as text: it was not run\.$/m)
  })

  await t.test('the blocks decide, and stop_reason is made to agree', () => {
    assert.deepEqual(outputs('end_turn beside a call'), [['run', undefined]])
    assert.equal(logged('end_turn beside a call')[0].stop_reason, 'tool_use')
    assert.equal(asked('tool_use without a call').length, 1)
    assert.equal(logged('tool_use without a call')[0].stop_reason, 'end_turn')
    assert.deepEqual(outputs('blank beside a call'), [['on', undefined]])
  })

  await t.test('thinking goes back as it came, byte for byte', () => {
    const { content } = asked('thinking')[1].messages.at(-2)
    assert.equal(JSON.stringify(content.slice(0, 3)), JSON.stringify(THINKING))
    assert.deepEqual(logged('thinking')[0].content.slice(0, 3), THINKING)
  })

  await t.test('half a character is sent nowhere: not back, not to a tool', () => {
    assert.deepEqual(asked('half a pair')[1].messages.at(-2).content[0], said('a\ufffd'))
    assert.deepEqual(outputs('half a pair'), [['b\ufffd', undefined]])
    assert(JSON.stringify(lane.lines).isWellFormed())
    assert.doesNotMatch(JSON.stringify(lane.lines), /\\ud[89a-f]/)
    assert.match(run.stdout, /\n\ufffd\n/)
  })

  await t.test('an input is an object, or an error that says so', () => {
    assert.deepEqual(outputs('json input'), [['json', undefined]])
    const missing = ['bash.command is missing: it is required, a string', true]
    assert.deepEqual(outputs('no object'), [missing, missing, missing])
  })

  await t.test('ids are there and unique in the conversation', () => {
    const [a, b, c] = ['a', 'b', 'c'].map((output) => [output, undefined])
    assert.deepEqual(outputs('same ids'), [a, b])
    assert.deepEqual(outputs('same ids', 2), [c])
    assert.deepEqual(outputs('no ids'), [a, b])
    const { messages } = run.requests.at(-1) as Json
    const ids = messages.flatMap(({ content }: Json) =>
      Array.isArray(content) ? content.flatMap(({ id }) => id ?? []) : [],
    )
    assert.equal(ids.length, 13)
    assert.equal(new Set(ids).size, ids.length)
  })

  await t.test('the run can be replayed', () => assertReplays('02-tool-use', run))
})

describe('prompts', { concurrency: 4 }, () => {
  // biome-ignore format: a table
  const WAYS: [name: string, args: string[], stdin: string, sent: string[]][] = [
    ['words behind the command, and nothing else is read', ['Say', 'it.'], 'No.\n', ['Say it.']],
    ['exit leaves, and lines without words do nothing', [], '\n \nexit\nnever\n', []],
  ]
  for (const [name, args, stdin, sent] of WAYS) {
    test(name, async (t) => {
      const run = await runLive(t, () => text('Yes.'), { args, stdin })
      assert.deepEqual(run.requests.map(promptOf), sent)
      assert.deepEqual([run.code, run.stderr], [0, ''])
    })
  }

  const pipe = async (t: Parameters<typeof serve>[0], input: string | Buffer) => {
    const server = await serve(t, () => text('Yes.'))
    const dotenv = envFile(server.url)
    const root = makeRoot(t)
    const step = startStep({ step: '02-tool-use', dotenv, root, stdin: null })
    step.child.stdin.write(input)
    return { server, step }
  }

  test('a BOM, CRLF and a pipe that stays open; it is one conversation', async (t) => {
    const { server, step } = await pipe(t, '\ufefffirst\r\nsecond ü\r\nq\r\nnever\r\n')
    const run = await step.result
    const contents = server.requests.at(-1)?.body.messages.map((m: Json) => m.content)
    assert.deepEqual(contents, ['first', [said('Yes.')], 'second ü'])
    assert.deepEqual([run.code, run.stderr, server.refused.length], [0, '', 0])
    assert.match(
      run.stdout,
      /\nparent: 4 messages, .*\nlog: logs\/live\/02-tool-use-\S+\n$/,
    )
  })

  test('a line that is not UTF-8 is refused in one line', async (t) => {
    const { server, step } = await pipe(t, Buffer.from('first\ncaf\xe9\n', 'latin1'))
    step.child.stdin.end()
    const run = await step.result
    assert.match(run.stderr, /^Standard input is not UTF-8 text: .*\n$/)
    assert.equal(run.code, 1)
    assert.equal(server.requests.length, 1)
    assert.equal(laneOf(run).messages.length, 2)
  })

  test('offline, a pipe that stays open and silent does not hold the run', async (t) => {
    const step = startStep({ step: '01-agent-loop', root: makeRoot(t), stdin: null })
    assert.equal((await step.result).code, 0)
  })
})
