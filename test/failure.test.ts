/**
 * Step 08 live: what a recording cannot show of how a child ends. What its parent reads in
 * each case is told in scenarios.test.ts.
 */
import assert from 'node:assert/strict'
import { test } from 'node:test'
import {
  type Answer,
  about,
  assertReplays,
  byPrompt,
  calls,
  fail,
  hangUp,
  laneOf,
  read,
  resultsIn,
  runLive,
  task,
  text,
} from './live.ts'

const STEP = '08-failure'
const I_LOOK = calls({ text: 'I look.' }, read('nothing.txt'))
const broke = fail(400, 'invalid_request_error', 'Your credit balance is too low.')
const overloaded = fail(529, 'overloaded_error', 'Overloaded', { 'retry-after-ms': '1' })
/** More than 50 KiB of characters of three bytes, so that both cuts go through one. */
const LONG = `HEAD${'界'.repeat(30_000)}TAILS`

/** What the children do, by the prompt of each, and what the parent's result begins with. */
const CHILDREN: Record<string, [said: RegExp, ...Answer[]]> = {
  capped: [
    /^capped at turn 30, unfinished \(310 tokens in, 155 out\)\n/,
    ...Array.from({ length: 30 }, () => I_LOOK),
    text('Found one; two is left.'),
  ],
  overloaded: [
    /^crashed: 529 overloaded_error: Overloaded \(1 turn, 10 tokens in, 5 out\)\n/,
    ...[I_LOOK, overloaded, overloaded, overloaded],
  ],
  'hung up': [
    /^crashed: no connection: UND_ERR_SOCKET other side closed \(1 turn, /,
    ...[I_LOOK, ...[1, 2, 3].map(() => hangUp('{"id":"msg_1","type":"mess'))],
  ],
  long: [/^completed \(1 turn, 10 tokens in, 5 out\)\n/, text(LONG)],
  'long, then crashed': [
    /^crashed: 400 invalid_request_error: Your credit balance is too low\. \(1 turn/,
    ...[calls({ text: LONG }, read('nothing.txt')), broke],
  ],
}

test('how a child ends, and what its parent reads', async (t) => {
  const parents = Object.keys(CHILDREN).map((child): [string, Answer[]] => [
    `ask ${child}`,
    [calls(task(child)), text(`After ${child}.`)],
  ])
  const children = Object.entries(CHILDREN).map(([name, [, ...all]]) => [name, all])
  const scripts = { ...Object.fromEntries(parents), ...Object.fromEntries(children) }
  const stdin = `${parents.map(([name]) => name).join('\n')}\n`
  const run = await runLive(t, byPrompt(scripts), { step: STEP, stdin })
  const asked = (prompt: string) => about(run.requests, prompt)
  const toldOf = (child: string) => resultsIn(asked(`ask ${child}`)[1])[0]

  await t.test('each its own, with turns and tokens, and the parent goes on', () => {
    assert.deepEqual([run.code, run.stderr], [0, ''])
    for (const [i, [child, [said]]] of Object.entries(CHILDREN).entries()) {
      const { content, is_error } = toldOf(child)
      assert.match(content, said, child)
      assert.equal(is_error, content.startsWith('completed') ? undefined : true)
      assert(run.stdout.includes(`\nAfter ${child}.\n`), child)
      const { event, status } = laneOf(run, `sub-${i + 1}`).events.at(-1) ?? {}
      assert.deepEqual([event, status], ['outcome', /^\w+/.exec(content)?.[0]])
    }
  })

  await t.test(
    'at the cap one last call, told so, with tools that may not be called',
    () => {
      const requests = asked('capped')
      const last = requests.pop() ?? {}
      assert.equal(requests.length, 30)
      for (const body of requests) assert.equal(body.tool_choice, undefined)
      assert.doesNotMatch(JSON.stringify(requests.at(-1)), /your last turn/, 'not before')
      assert.deepEqual(last.tool_choice, { type: 'none' })
      assert.deepEqual(last.tools, requests[0].tools)
      const [result, note] = last.messages.at(-1).content
      assert.equal(result.type, 'tool_result')
      assert.match(
        note.text,
        /^That was your last turn with tools\. Say now what you found/,
      )
    },
  )

  await t.test('the SDK tries three times', () => {
    for (const child of ['overloaded', 'hung up']) assert.equal(asked(child).length, 4)
  })

  await t.test('a long text keeps head and tail, and no half character', () => {
    for (const child of ['long', 'long, then crashed']) {
      const { content } = toldOf(child)
      assert.match(content, /:\nHEAD界+\n\[\d+ bytes left out\]\n界+TAILS\n\n/)
      const size = Buffer.byteLength(content)
      assert(size > 50 * 1024 && size < 51 * 1024, `${size} bytes`)
    }
  })

  await t.test('the run can be replayed', () => assertReplays(STEP, run))
})
