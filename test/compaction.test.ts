/** Step 12: when a history is summed up, what of it stays, and how that can fail. */
import assert from 'node:assert/strict'
import { join } from 'node:path'
import { test } from 'node:test'
import { readFolder } from '../steps/support/base/lane-file.ts'
import {
  type Answer,
  assertReplays,
  calls,
  envFile,
  fail,
  type Json,
  laneOf,
  makeRoot,
  posix,
  read,
  resultsIn,
  runLive,
  serve,
  stall,
  startStep,
  task,
  text,
  until,
} from './live.ts'

const STEP = '12-compaction'
/** A reply after which the API has counted so many tokens. */
const counted = (input_tokens: number) => ({ usage: { input_tokens, output_tokens: 10 } })
const small = counted(5_000)
const [ok, big] = [calls(read(), small), calls(read(), counted(150_000))]
const same = calls({ ...read(), id: 'toolu_same' }, small)
const four = [ok, ok, ok, big]
const [known, done] = [text('What I know.'), text('Done.', small)]
const refused = fail(400, 'invalid_request_error', 'Not today.')
const long = 'prompt is too long: 210000 tokens > 200000 maximum'
const tooLong = fail(400, 'invalid_request_error', long)

/**
 * What each child is told, and all replies that it gets, those to requests for a summary
 * among them; how many of these there are, the numbers of the messages that are replaced,
 * and how many messages its last request holds.
 */
// biome-ignore format: a table
const CHILDREN: [prompt: string, replies: Answer[], asked: number, replaced: number[][], left: number][] = [
  ['out of time', [...four, stall()], 1, [], 7],
  ['once', [...four, known, ok, done], 1, [[2, 3, 4, 5]], 8],
  ['twice', [...four, text('First.'), ...four, text('Second.'), ok, done], 2, [[2, 3, 4, 5], [2, 3, 4, 5, 6, 7, 8, 9, 10]], 8],
  ['still too large', [...four, known, big, big, big, done], 1, [[2, 3, 4, 5]], 12],
  ['empty', [...four, text(''), big, big, done], 1, [], 13],
  ['empty, and then twice as large', [...four, text(''), calls(read(), counted(310_000)), known, done], 2, [[2, 3, 4, 5, 6, 7]], 6],
  ['cut', [...four, text('Half of wh', { stop_reason: 'max_tokens' }), big, done], 1, [], 11],
  ['no smaller', [...four, text('x'.repeat(20_000)), big, done], 1, [], 11],
  ['refused', [...four, refused, big, done], 1, [], 11],
  ['a call', [...four, ok, big, done], 1, [], 11],
  ['too little', [big, big, done], 0, [], 5],
  ['an id that comes again', [same, ok, ok, big, known, same, done], 1, [[2, 3, 4, 5]], 8],
  ['too long for the API', [...four.with(-1, ok), tooLong, known, ok, done], 1, [[2, 3, 4, 5]], 8],
  ['too long all the same', [...four.with(-1, ok), tooLong, known, tooLong], 1, [[2, 3, 4, 5]], 6],
]

const isSummary = ({ messages, tool_choice }: Json) =>
  tool_choice?.type === 'none' && /^Sum up/.test(messages.at(-1).content)
const shape = ({ messages }: Json) =>
  messages.map(({ role, content }: Json) =>
    typeof content === 'string'
      ? content.slice(0, 6)
      : `${role} ${content.map((block: Json) => block.text ?? block.type).join('+')}`,
  )
const TURN = ['assistant tool_use', 'user tool_result']

test('histories that grow too large, each in a child, then in the parent', async (t) => {
  const tasks = CHILDREN.map(([prompt], i) =>
    task(prompt, i === 0 ? { timeoutMs: 4000 } : {}),
  )
  const replies = new Map(CHILDREN.map(([prompt, all]) => [prompt, [...all]]))
  replies.get('once')?.push(text('I still know.'))
  replies.set('One.', [
    ...[calls(...tasks, small), done],
    // What is summed up before the third prompt ends with the second.
    ...[calls(task('And now?', { resume: 'sub-2' })), text('Done.', counted(150_000))],
    ...[known, done],
  ])
  const next = ({ messages }: Json) => replies.get(messages[0].content)?.shift() as Answer
  const run = await runLive(t, next, { step: STEP, stdin: 'One.\nTwo.\nThree.\n' })
  assert.deepEqual([run.code, run.stderr], [0, ''])
  const of = (prompt: string) =>
    run.requests.filter(({ messages }) => messages[0].content === prompt)
  const results = resultsIn(of('One.')[1]).map(({ content }) => content)

  for (const [i, [prompt, , asked, replaced, left]] of CHILDREN.entries()) {
    await t.test(prompt, () => {
      const requests = of(prompt)
      assert.equal(requests.filter(isSummary).length, asked)
      const { events } = laneOf(run, `sub-${i + 1}`)
      const compacted = events.filter(({ event }) => event === 'compacted')
      assert.deepEqual(
        compacted.map((event) => event.replaced),
        replaced,
      )
      const isResumed = ({ messages }: Json) => /^And now/.test(messages.at(-1).content)
      const last = requests.findLast((body) => !isSummary(body) && !isResumed(body))
      assert.equal(last?.messages.length, left)
      const said = {
        'out of time': 'timed_out after 4000 ms',
        'too long all the same': 'crashed: 400 invalid_request_error: prompt is too long',
      }[prompt]
      assert(results[i].startsWith(said ?? 'completed'), results[i])
    })
  }

  await t.test('one request over another array, and its text takes the place', () => {
    const at = of('once').findIndex(isSummary)
    const [asked, after] = of('once').slice(at)
    assert.deepEqual(shape(asked), ['once', ...TURN, ...TURN, 'Sum up'])
    assert.deepEqual(shape(after), ['once', 'user What I know.', ...TURN, ...TURN])
    assert.equal(laneOf(run, 'sub-2').events[0].by, 'sub-2.summary-1')
    assert.match(run.stdout, /sub-2: sub-2\.summary-1 stands for 4 messages/)
    assert.match(run.stdout, /sub-2\.summary-1: 7 messages, .*tokens 10 in, 5 out/)
    assert.match(run.stdout, /sub-9 is not summed up: 400 .*: Not today\./)
  })

  await t.test('the second summary takes the first one in', () => {
    const [, second] = of('twice').filter(isSummary)
    assert.equal(shape(second)[1], 'user First.')
    const [last] = of('twice').slice(-1)
    assert.equal(shape(last)[1], 'user Second.')
    assert.doesNotMatch(JSON.stringify(last), /First\./)
  })

  await t.test('an id is not given again where its call is only in the log', () => {
    const at = CHILDREN.findIndex(([prompt]) => prompt === 'an id that comes again')
    const { messages } = laneOf(run, `sub-${at + 1}`)
    const ids = JSON.stringify(messages).match(/"id":"\w+"/g)
    assert.equal(ids?.length, 5)
    assert.equal(new Set(ids).size, 5)
  })

  await t.test('resumed, a child goes on with what it then knew', () => {
    const [last] = of('once').slice(-1)
    assert.equal(shape(last)[1], 'user What I know.')
    assert.match(last.messages.at(-1).content, /^And now\?/)
  })

  await t.test('what was asked stays word for word, every prompt of it', () => {
    const [last] = of('One.').slice(-1)
    const kept = ['user What I know.', 'Two.', ...TURN, 'assistant Done.']
    assert.deepEqual(shape(last), ['One.', ...kept, 'Three.'])
  })

  await t.test('out of time, nothing of a history is lost', () => {
    const { messages, events } = laneOf(run, 'sub-1')
    assert.deepEqual([messages.length, events.length], [9, 1])
  })

  await t.test('the run can be replayed', () => assertReplays(STEP, run))
})

test('Ctrl+C in a compaction leaves the history as it was', posix, async (t) => {
  const server = await serve(t, [...four, stall()])
  const options = { step: STEP, args: ['Look around.'], dotenv: envFile(server.url) }
  const { child, result } = startStep({ ...options, root: makeRoot(t) })
  await until(() => server.requests.some(({ body }) => isSummary(body)), 'a compaction')
  child.kill('SIGINT')
  const run = await result
  assert.equal(run.code, 130)
  assert.doesNotMatch(run.stdout, /is not summed up/, 'nothing has failed')
  const { messages, events } = laneOf(run)
  assert.deepEqual([messages.length, events], [9, []])
  assert.equal(laneOf(run, 'parent.summary-1').events[0].event, 'no_answer')
})

test('the two recordings tell their story', () => {
  const logs = join(import.meta.dirname, '../logs/recorded')
  for (const [name, said] of [
    [STEP, /share the user ada/],
    [`${STEP}.lost`, /can use ada/],
  ] as const) {
    const child = readFolder(join(logs, name)).find((lane) => lane.name === 'sub-1')
    assert.match(JSON.stringify(child?.messages.at(-1)), said)
    assert(child?.lines.some(({ event }) => event === 'compacted'))
  }
})
