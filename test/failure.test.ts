/** Step 08: for each way in which a child can end, what its parent reads. */
import assert from 'node:assert/strict'
import { readdirSync } from 'node:fs'
import { join } from 'node:path'
import { test } from 'node:test'
import { requestError } from '../steps/support/base/protocol.ts'
import { headAndTail } from '../steps/support/tools/tool.ts'
import {
  about,
  assertReplays,
  byPrompt,
  laneOf,
  logFolder,
  resultsIn,
  runLive,
} from './live.ts'
import {
  type Answer,
  calls,
  fail,
  hangUp,
  readLane,
  reply,
  stall,
  text,
} from './server.ts'

const STEP = '08-failure'
const look = { name: 'read_file', input: { path: 'nothing.txt' } }
const I_LOOK = calls({ text: 'I look.' }, look)
const AGAIN = { 'retry-after-ms': '1' }
const overloaded = fail(529, 'overloaded_error', 'Overloaded', AGAIN)
const broke = fail(400, 'invalid_request_error', 'Your credit balance is too low.')
const THINKING = [
  { type: 'thinking', thinking: 'Hm: "é" \\', signature: 'EqQB+/==' },
  { type: 'redacted_thinking', data: 'EmwKAhgB' },
  { type: 'text', text: 'I look.', citations: null },
  { type: 'tool_use', id: 'toolu_think', ...look },
]
/** More than 50 KiB of characters of three bytes, so that both cuts go through one. */
const LONG = `HEAD${'界'.repeat(30_000)}TAILS`

/** What the children do, by the prompt of each. */
const CHILDREN: Record<string, Answer[]> = {
  completed: [
    I_LOOK,
    reply([
      { type: 'text', text: 'Part one, ' },
      { type: 'text', text: 'part two.' },
    ]),
  ],
  thinking: [reply(THINKING), text('Thought.')],
  capped: [
    ...Array.from({ length: 30 }, (_, i) => calls({ text: `Turn ${i + 1}.` }, look)),
    text('Found one; two is left.'),
  ],
  'capped, and calls again': [...Array.from({ length: 30 }, () => I_LOOK), calls(look)],
  'timed out': [I_LOOK, stall()],
  empty: [I_LOOK, reply([])],
  blank: [
    reply([
      { type: 'text', text: 'First ' },
      { type: 'text', text: ' \n' },
      { type: 'text', text: 'words.' },
      { type: 'tool_use', ...look },
    ]),
    calls(look),
    reply([
      { type: 'text', text: ' ' },
      { type: 'tool_use', ...look },
    ]),
    reply([{ type: 'text', text: ' \n' }]),
  ],
  refused: [I_LOOK, text('I will not.', { stop_reason: 'refusal' })],
  cut: [I_LOOK, text('Half a rep', { stop_reason: 'max_tokens' })],
  'cut to nothing': [I_LOOK, reply([], { stop_reason: 'max_tokens' })],
  'cut call': [calls(look, { stop_reason: 'max_tokens' }), text('Then so.')],
  overloaded: [I_LOOK, overloaded, overloaded, overloaded],
  'hung up': [I_LOOK, ...[1, 2, 3].map(() => hangUp('{"id":"msg_1","type":"mess'))],
  'without a word': [fail(401, 'authentication_error', 'invalid x-api-key')],
  long: [text(LONG)],
  'long, then crashed': [calls({ text: LONG }, look), broke],
}

const task = (prompt: string, timeoutMs?: number) => ({
  name: 'task',
  input: { prompt, ...(timeoutMs && { timeoutMs }) },
})

test('how a child ends, and what its parent reads', async (t) => {
  const parents = Object.keys(CHILDREN).map((child): [string, Answer[]] => {
    const timeoutMs = child === 'timed out' ? 1000 : undefined
    return [`ask ${child}`, [calls(task(child, timeoutMs)), text(`After ${child}.`)]]
  })
  const scripts = {
    ...Object.fromEntries(parents),
    ...CHILDREN,
    'ask two': [calls(task('one of two'), task('two of two')), text('After two.')],
    'one of two': [broke],
    'two of two': [text('Mine is done.')],
    'the same cause': [calls(task('broke')), broke],
    broke: [I_LOOK, broke],
    last: [text('Goodbye.')],
  }
  const prompts = [...parents.map(([name]) => name), 'ask two', 'the same cause', 'last']
  const stdin = `${prompts.join('\n')}\n`
  const run = await runLive(t, byPrompt(scripts), { step: STEP, stdin })
  const asked = (prompt: string) => about(run.requests, prompt)
  const results = (prompt: string) => resultsIn(asked(prompt)[1])
  const resultOf = (child: string) => results(`ask ${child}`)[0]

  /** Status line, then the text under its label, then what can be done next. */
  function assertTold(child: string, how: string, said: string, turns: number) {
    const { content, is_error } = resultOf(child)
    const [status, next] = [content.split('\n')[0], content.split('\n\n').at(-1)]
    const cost = turns > 0 ? `, ${turns * 10} tokens in, ${turns * 5} out` : ''
    const line = `${how} (${turns} turns${cost})`
    assert.equal(status.replace(/(?<=\(\d+ )turn\b/, 'turns'), line)
    const isDone = how === 'completed'
    const label = isDone ? 'Its report' : 'Its last words, no report'
    const words = said ? `${label}:\n${said}` : 'No other words.'
    assert.equal(content, `${status}\n\n${words}\n\n${next}`)
    assert.match(next, /^[A-Z].*\.$/)
    assert.equal(is_error, isDone ? undefined : true)
  }

  await t.test('completed: the report, all of its blocks', () => {
    assertTold('completed', 'completed', 'Part one, part two.', 2)
  })

  await t.test('thinking goes back as it came', () => {
    assertTold('thinking', 'completed', 'Thought.', 2)
    assert.deepEqual(asked('thinking')[1].messages[1].content, THINKING)
  })

  await t.test('capped: one last call, without tools, whose text is kept', () => {
    const requests = asked('capped')
    assert.equal(requests.length, 31)
    for (const body of requests.slice(0, -1)) assert.equal(body.tool_choice, undefined)
    const last = requests[30]
    assert.deepEqual(last.tool_choice, { type: 'none' })
    assert.deepEqual(last.tools, requests[0].tools)
    const [result, note] = last.messages.at(-1).content
    assert.equal(result.type, 'tool_result')
    assert.match(
      note.text,
      /^That was your last turn with tools\. Say now what you found/,
    )
    const notes = JSON.stringify(requests[29]).match(/your last turn/)
    assert.equal(notes, null, 'not before')
    const how = 'capped at 30 turns, unfinished'
    assertTold('capped', how, 'Found one; two is left.', 31)
  })

  await t.test('capped: a call in the last reply is not run, and not left open', () => {
    assert.equal(asked('capped, and calls again').length, 31)
    assertTold('capped, and calls again', 'capped at 30 turns, unfinished', 'I look.', 31)
    const { messages } = childLane('capped, and calls again')
    const next = [...messages, { role: 'user', content: 'Go on.' }]
    const tools = [{ name: 'read_file', input_schema: { type: 'object' } }]
    const body = { model: 'm', max_tokens: 1, tools, messages: next }
    assert.equal(requestError(body), undefined)
  })

  await t.test('timed out: the last words, called what they are', () => {
    assertTold('timed out', 'timed_out after 1000 ms, unfinished', 'I look.', 1)
  })

  await t.test('crashed: nothing came, or nothing that is a report', () => {
    const before = (words: string) => `; the last words before it: ${words}`
    const empty = 'crashed: the reply was empty (stop_reason end_turn)'
    assertTold('empty', empty + before('I look.'), 'I look.', 1)
    assertTold('blank', empty + before('First words.'), 'First words.', 3)
    const refused = 'the model refused to answer (stop_reason refusal): I will not.'
    assertTold('refused', `crashed: ${refused}`, 'I look.', 1)
    assertTold('cut', 'crashed: its report was cut by max_tokens', 'Half a rep', 2)
    const cut = 'the reply was cut by max_tokens before any text'
    assertTold('cut to nothing', `crashed: ${cut}${before('I look.')}`, 'I look.', 1)
  })

  await t.test('a call that was cut is not run, and the child goes on', () => {
    assertTold('cut call', 'completed', 'Then so.', 2)
    const [{ content, is_error }] = resultsIn(asked('cut call')[1])
    assert.match(content, /^Not run: .* cut/)
    assert.equal(is_error, true)
  })

  await t.test('crashed: the API fails, after some text or before any', () => {
    const busy = '529 overloaded_error: Overloaded'
    assertTold('overloaded', `crashed: ${busy}`, 'I look.', 1)
    assert.equal(asked('overloaded').length, 4, 'the SDK tries three times')
    const lost = 'no connection: UND_ERR_SOCKET other side closed'
    assertTold('hung up', `crashed: ${lost}`, 'I look.', 1)
    const denied = '401 authentication_error: invalid x-api-key'
    assertTold('without a word', `crashed: ${denied}`, '', 0)
  })

  await t.test('a long text keeps head and tail, and no half character', () => {
    for (const child of ['long', 'long, then crashed']) {
      const { content } = resultOf(child)
      assert.match(content, /:\nHEAD界+\n\[\d+ bytes left out\]\n界+TAILS\n\n/)
      assert.doesNotMatch(content, /\ufffd/)
      const size = Buffer.byteLength(content)
      assert(size > 50 * 1024 && size < 51 * 1024, `${size} bytes`)
    }
    const status = 'crashed: 400 invalid_request_error: Your credit balance is too low.'
    assert.match(resultOf('long').content, /^completed \(1 turn?, 10 tokens in/)
    assert(resultOf('long, then crashed').content.startsWith(`${status} (1 turn`))
  })

  await t.test("whatever happens, the parent and the child's siblings go on", () => {
    for (const child of Object.keys(CHILDREN)) {
      assert(run.stdout.includes(`\nAfter ${child}.\n`), child)
    }
    const [one, two] = results('ask two')
    assert.match(one.content, /^crashed: 400 .*\(0 turns\)\n\nNo other words\.\n\n/)
    assert.match(two.content, /^completed .*\n\nIts report:\nMine is done\.\n\n/)
    assert.deepEqual([one.is_error, two.is_error], [true, undefined])
  })

  await t.test(
    'where the cause is shared, the parent fails too: one line, exit 1',
    () => {
      const line = `400 invalid_request_error: Your credit balance is too low.`
      assert.equal(run.stderr, `${line} (test-model at ${run.server.url})\n`)
      assert.equal(run.code, 1)
      const [{ content, is_error }] = results('the same cause')
      assert.match(
        content,
        /^crashed: 400 .*\n\nIts last words, no report:\nI look\.\n\n/,
      )
      assert.equal(is_error, true)
      assert.match(run.stdout, /\nGoodbye\.\n/, 'the next prompt is answered')
    },
  )

  await t.test('the run can be replayed', () => assertReplays(STEP, run))

  await t.test('how a child ended is a line of its lane, too', () => {
    for (const child of Object.keys(CHILDREN)) {
      const { event, status, turns } = childLane(child).lines.at(-1) ?? {}
      assert.equal(event, 'outcome')
      const [, told, n] = /^(\w+).*\((\d+) turns?/.exec(resultOf(child).content) ?? []
      assert.deepEqual([status, turns], [told, Number(n)], child)
    }
  })

  function childLane(prompt: string) {
    const names = readdirSync(join(run.root, logFolder(run)))
    const lanes = names.filter((name) => /^sub-\d+\.log$/.test(name))
    const lane = lanes.find((name) => {
      return laneOf(run, name.slice(0, -4)).messages[0].content === prompt
    })
    assert(lane, prompt)
    return laneOf(run, lane.slice(0, -4))
  }
})

test('offline no tokens are known, and none are told', () => {
  const root = join(import.meta.dirname, '..')
  const { messages } = readLane(root, `logs/recorded/${STEP}/parent.log`)
  const told = messages.flatMap(({ content }) => (Array.isArray(content) ? content : []))
  const [{ content, is_error }] = told.filter(({ content: c }) => /^crashed/.test(c))
  assert.match(
    content,
    /^crashed: .*credit.* \(\d+ turns?\)\n\nIts last words, no report:\n/,
  )
  assert.equal(is_error, true)
})

test('a text is cut between characters, wherever the cut would fall', () => {
  for (const character of ['a', 'é', '界', '🙂']) {
    for (const head of ['', 'x', 'xx', 'xxx']) {
      for (const most of [100, 101, 102, 103]) {
        const whole = head + character.repeat(100)
        const cut = headAndTail(whole, most)
        const parts = /^(.*)\n\[(\d+) bytes left out\]\n(.*)$/s.exec(cut)
        if (Buffer.byteLength(whole) <= most) {
          assert.equal(cut, whole)
          continue
        }
        const [, first, left, last] = parts ?? assert.fail(cut)
        assert(whole.startsWith(first) && whole.endsWith(last), cut)
        const kept = Buffer.byteLength(first + last)
        assert(kept <= most && kept > most - 9, `${kept} of ${most}`)
        assert.equal(Number(left) + kept, Buffer.byteLength(whole), cut)
      }
    }
  }
})
