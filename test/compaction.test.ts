/** Step 12: when a history is summed up, what of it stays, and how that can fail. */
import assert from 'node:assert/strict'
import { describe, test } from 'node:test'
import { assertReplays, envFile, laneOf, resultsIn, runLive, serve } from './live.ts'
import {
  type Answer,
  calls,
  editStep,
  fail,
  type Json,
  makeRoot,
  posix,
  runStep,
  stall,
  startStep,
  text,
} from './server.ts'

const STEP = '12-compaction'
const large = { usage: { input_tokens: 150_000, output_tokens: 10 } }
const small = { usage: { input_tokens: 5_000, output_tokens: 10 } }
const read = { name: 'read_file', input: { path: 'README.md' } }

const isSummary = ({ messages, tool_choice }: Json) =>
  tool_choice?.type === 'none' && /^Sum up/.test(messages.at(-1).content)
/** The text of a summary, as it stands in a request's history. */
const summaryIn = ({ messages }: Json): string | undefined =>
  messages.find(
    ({ role, content }: Json) => role === 'user' && content[0].type === 'text',
  )?.content[0].text
const shape = ({ messages }: Json) =>
  messages.map(({ role, content }: Json) =>
    typeof content === 'string'
      ? role
      : `${role} ${content.map(({ type }: Json) => type).join('+')}`,
  )

/** A model that reads until it has read `turns` times; `size` is what the API counts. */
function reader(turns: number, summaries: Answer[], size = (_n: number): Json => large) {
  let n = 0
  return (body: Json): Answer => {
    if (isSummary(body))
      return (
        summaries.shift() ??
        fail(500, 'api_error', 'no more', { 'x-should-retry': 'false' })
      )
    n += 1
    return n > turns ? text('Done.', small) : calls(read, size(n))
  }
}

const run = (
  t: Parameters<typeof runLive>[0],
  script: Parameters<typeof runLive>[1],
  more: object = {},
) => runLive(t, script, { step: STEP, args: ['Look around.'], ...more })

describe('a history that grows too large', { concurrency: 3 }, () => {
  test('is summed up by one request over another array, and its text takes the place', async (t) => {
    const sizes = (n: number) => (n === 4 ? large : small)
    const done = await run(t, reader(5, [text('What I know.')], sizes))
    assert.equal(done.code, 0, done.stderr)
    const asked = done.requests.find(isSummary) as Json
    assert.deepEqual(shape(asked), [
      'user',
      ...Array(2).fill(['assistant tool_use', 'user tool_result']).flat(),
      'user',
    ])
    const after = done.requests[done.requests.indexOf(asked) + 1]
    assert.deepEqual(shape(after), [
      'user',
      'user text',
      ...Array(2).fill(['assistant tool_use', 'user tool_result']).flat(),
    ])
    assert.equal(after.messages[0].content, 'Look around.')
    assert.equal(summaryIn(after), 'What I know.')
    const { events } = laneOf(done)
    assert.deepEqual(
      events.map(({ event, replaced, by }: Json) => ({ event, replaced, by })),
      [{ event: 'compacted', replaced: [2, 3, 4, 5], by: 'parent.summary-1' }],
    )
    assert.match(done.stdout, /parent: parent\.summary-1 stands for 4 messages/)
    assert.match(done.stdout, /parent\.summary-1: 7 messages, .*tokens 10 in, 5 out/)
    await assertReplays(STEP, done)
  })

  test('twice, and the second summary takes the first one in', async (t) => {
    const sizes = (n: number) => (n === 4 || n === 8 ? large : small)
    const done = await run(t, reader(9, [text('First.'), text('Second.')], sizes))
    assert.equal(done.code, 0, done.stderr)
    const [, second] = done.requests.filter(isSummary)
    assert.equal(summaryIn(second), 'First.')
    assert.equal(summaryIn(done.requests.at(-1) as Json), 'Second.')
    assert(!JSON.stringify(done.requests.at(-1)).includes('First.'))
    await assertReplays(STEP, done)
  })

  test('what was asked stays word for word, every prompt of it', async (t) => {
    let n = 0
    const script = (body: Json): Answer => {
      if (isSummary(body)) return text('What I know.')
      n += 1
      return n % 3 === 0 ? text('Done.', n > 5 ? large : small) : calls(read, small)
    }
    const done = await run(t, script, { args: [], stdin: 'One.\nTwo.\nThree.\n' })
    assert.equal(done.code, 0, done.stderr)
    const prompts = ((done.requests.at(-1) as Json).messages as Json[]).filter(
      ({ content }) => typeof content === 'string',
    )
    assert.deepEqual(
      prompts.map(({ content }) => content),
      ['One.', 'Two.', 'Three.'],
    )
    await assertReplays(STEP, { ...done })
  })
})

describe('a summary that does not help leaves the history as it was', {
  concurrency: 3,
}, () => {
  const long = 'x'.repeat(20_000)
  const cases: [what: string, answer: Answer, told: RegExp][] = [
    ['empty', text(''), /^/],
    ['cut', text('Half of wh', { stop_reason: 'max_tokens' }), /^/],
    ['no smaller', text(long), /^/],
    ['refused by the API', fail(400, 'invalid_request_error', 'Not today.'), /Not today/],
    ['a call instead of a text', calls(read), /^/],
  ]
  for (const [what, answer, told] of cases) {
    test(`${what}: the run goes on, and does not try at every turn`, async (t) => {
      const done = await run(t, reader(7, [answer, answer, answer]))
      assert.equal(done.code, 0, done.stderr)
      assert.equal(done.requests.filter(isSummary).length, 1)
      const last = done.requests.at(-1) as Json
      assert.equal(last.messages.length, 15)
      assert.deepEqual(
        laneOf(done).events.filter(({ event }: Json) => event === 'compacted'),
        [],
      )
      assert.match(done.stdout, told)
    })
  }

  test('what stays too large all the same is not summed up at every turn', async (t) => {
    const done = await run(t, reader(9, [text('One.'), text('Two.'), text('Three.')]))
    assert.equal(done.code, 0, done.stderr)
    assert.equal(done.requests.filter(isSummary).length, 1)
    await assertReplays(STEP, done)
  })

  test('an id of a call that is gone may come again', async (t) => {
    let n = 0
    const script = (body: Json): Answer => {
      if (isSummary(body)) return text('What I know.')
      n += 1
      if (n === 1 || n === 6) return calls({ ...read, id: 'toolu_same' }, small)
      return n > 6 ? text('Done.') : calls(read, n === 4 ? large : small)
    }
    const done = await run(t, script)
    assert.equal(done.code, 0, done.stderr)
    const ids = laneOf(done).messages.flatMap(({ content }) =>
      Array.isArray(content) ? content.map(({ id }: Json) => id).filter(Boolean) : [],
    )
    assert.equal(new Set(ids).size, 6)
    await assertReplays(STEP, done)
  })

  test('too little is there to sum up: nothing is asked', async (t) => {
    const done = await run(t, reader(2, []))
    assert.equal(done.code, 0, done.stderr)
    assert.equal(done.requests.filter(isSummary).length, 0)
  })
})

describe('a request that the API calls too long', { concurrency: 3 }, () => {
  const tooLong = fail(
    400,
    'invalid_request_error',
    'prompt is too long: 210000 tokens > 200000 maximum',
  )

  test('is met with one compaction and one more try', async (t) => {
    let n = 0
    const script = (body: Json): Answer => {
      if (isSummary(body)) return text('What I know.')
      n += 1
      if (n === 5) return tooLong
      return n > 6 ? text('Done.') : calls(read, small)
    }
    const done = await run(t, script)
    assert.equal(done.code, 0, done.stderr)
    assert.equal(done.requests.filter(isSummary).length, 1)
    await assertReplays(STEP, done)
  })

  test('is told when that does not help', async (t) => {
    let n = 0
    const script = (body: Json): Answer => {
      if (isSummary(body)) return text('What I know.')
      n += 1
      return n > 4 ? tooLong : calls(read, small)
    }
    const done = await run(t, script)
    assert.equal(done.code, 1)
    assert.equal(done.requests.filter(isSummary).length, 1)
    assert.match(done.stderr, /prompt is too long/)
  })
})

describe('a child', { concurrency: 3 }, () => {
  const task = (more: Json = {}) => ({ name: 'task', input: { prompt: 'Dig.', ...more } })
  const isChild = ({ messages }: Json) => messages[0].content === 'Dig.'

  test('compacts by the same loop, and is resumed with what it then knew', async (t) => {
    const child = reader(5, [text('What I know.')], (n) => (n === 4 ? large : small))
    let n = 0
    const script = (body: Json): Answer => {
      if (isChild(body)) return child(body)
      n += 1
      if (n === 1) return calls(task())
      return n === 2
        ? calls(task({ resume: 'sub-1', prompt: 'And now?' }))
        : text('Done.')
    }
    const done = await run(t, script)
    assert.equal(done.code, 0, done.stderr)
    const resumed = done.requests.filter(isChild).at(-1) as Json
    assert.equal(summaryIn(resumed), 'What I know.')
    assert.match(resumed.messages.at(-1).content, /^And now\?/)
    const [first] = resultsIn(done.requests.filter((body) => !isChild(body))[1])
    assert.match(first.content, /^completed \(6 turns/)
    await assertReplays(STEP, done)
  })

  test('is timed out in the middle of a compaction: nothing of its history is lost', async (t) => {
    const child = reader(5, [stall()], (n) => (n === 4 ? large : small))
    let n = 0
    const script = (body: Json): Answer => {
      if (isChild(body)) return child(body)
      n += 1
      return n === 1 ? calls(task({ timeoutMs: 6000 })) : text('Done.')
    }
    const done = await run(t, script)
    assert.equal(done.code, 0, done.stderr)
    const [result] = resultsIn(done.requests.at(-1) as Json)
    assert.match(result.content, /^timed_out after 6000 ms/)
    const { messages, events } = laneOf(done, 'sub-1')
    assert.equal(messages.length, 9)
    assert.deepEqual(
      events.map(({ event }: Json) => event),
      ['outcome'],
    )
  })
})

test(
  'Ctrl+C in the middle of a compaction leaves the history as it was',
  posix,
  async (t) => {
    let began = () => {}
    const summing = new Promise<void>((go) => {
      began = go
    })
    const script = reader(5, [stall()], (n) => (n === 4 ? large : small))
    const server = await serve(t, (body) => {
      if (isSummary(body)) began()
      return script(body)
    })
    const options = { step: STEP, args: ['Look around.'], dotenv: envFile(server.url) }
    const { child, result } = startStep({ ...options, root: makeRoot(t) })
    await summing
    child.kill('SIGINT')
    const done = await result
    assert.equal(done.code, 130)
    const { messages, events } = laneOf(done)
    assert.equal(messages.length, 9)
    assert.deepEqual(events, [])
    assert.equal(laneOf(done, 'parent.summary-1').events[0].event, 'no_answer')
  },
)

test('a run whose LIMIT was edited offline says that the summary was not recorded', async (t) => {
  const root = makeRoot(t)
  editStep(root, STEP, 'bytes: 6_500', 'bytes: 4_000')
  const { stdout, code } = await runStep({ step: STEP, root })
  assert.match(stdout, /was not recorded|not at this place/)
  assert.equal(code, 1)
})

test('the two recordings tell their story', async (t) => {
  const root = makeRoot(t)
  const good = laneOf(await runStep({ step: STEP, root }), 'sub-1')
  const args = ['--replay', 'logs/recorded/12-compaction.lost']
  const lost = laneOf(await runStep({ step: STEP, root, args }), 'sub-1')
  const said = ({ messages }: { messages: Json[] }) => JSON.stringify(messages.at(-1))
  assert.match(said(good), /share the user ada/)
  assert.match(said(lost), /can use ada/)
  for (const { events } of [good, lost]) assert.equal(events[0].event, 'compacted')
})
