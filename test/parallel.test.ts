/** Step 10: several tasks in one reply, at once, in order, each for itself. */
import assert from 'node:assert/strict'
import { existsSync } from 'node:fs'
import { join } from 'node:path'
import { test } from 'node:test'
import { requestError } from '../steps/support/base/protocol.ts'
import {
  about,
  byPrompt,
  calls,
  envFile,
  fail,
  filesOf,
  type Json,
  laneOf,
  logFolder,
  makeRoot,
  posix,
  promptOf,
  read,
  resultsIn,
  runLive,
  serve,
  stall,
  startStep,
  task,
  text,
  until,
  write,
} from './live.ts'

const STEP = '10-parallel'
const CHANGED = '\n\n(Files may have changed: read again what you rely on.)'

const resume = (lane: string, prompt: string) => task(prompt, { resume: lane })
const overloaded = fail(529, 'overloaded_error', 'Overloaded', { 'retry-after-ms': '1' })
const lanesIn = (root: string, folder: string) =>
  Object.keys(filesOf(join(root, folder))).map((name) => name.replace('.log', ''))

test('the tasks of a reply', async (t) => {
  const six = [0, 1, 2, 3, 4, 5].map((i) => `six ${i}`)
  const script = byPrompt({
    six: [calls(...six.map((prompt) => task(prompt))), text('So.')],
    ...Object.fromEntries(six.map((prompt) => [prompt, [text(`Of ${prompt}.`)]])),
    mixed: [
      calls(
        ...[write('a.md', 'one'), task('first'), task('second')],
        ...[write('a.md', 'two'), read('a.md'), task('third')],
      ),
      calls(task('never'), write('cut.md', 'x'), { stop_reason: 'max_tokens' }),
      text('So.'),
    ],
    first: [calls(read('a.md')), text('First.')],
    second: [calls(read('a.md')), text('Second.')],
    third: [calls(read('a.md')), text('Third.')],
    all: [
      calls(
        ...[task('fails'), task('slow', { timeoutMs: 1000 }), task('works')],
        ...[task('refused', { agent: 'nobody' }), task('works too')],
        ...[resume('sub-99', 'never'), { name: 'task' }, task('long')],
      ),
      text('So.'),
    ],
    fails: [overloaded, overloaded, overloaded],
    slow: [stall()],
    works: [text('It works.')],
    'works too': [text('It works too.')],
    long: [calls(read('README.md')), text('It works in the end.')],
    again: [
      calls(
        ...[resume('sub-12', 'once'), resume('sub-12', 'twice')],
        task('new', { resume: '', agent: '' }),
      ),
      text('So.'),
    ],
    [`once${CHANGED}`]: [text('Once more.')],
    [`twice${CHANGED}`]: [text('Both write one lane.')],
    new: [text('A new child.')],
  })
  const asked: string[] = []
  const open = new Set<string>()
  let [most, done] = [0, 0]
  /** What must have happened before a prompt is answered. */
  const held: Record<string, () => unknown> = {
    // The first is the slowest: whoever is faster, the order stays.
    'six 0': () => done === 5,
    first: () => asked.includes('second'),
    works: () => asked.filter((one) => one === 'fails').length === 3,
    [`once${CHANGED}`]: () => asked.includes('new'),
  }
  const run = await runLive(
    t,
    async (body, n) => {
      const prompt = promptOf(body)
      asked.push(prompt)
      const answer = await script(body, n)
      if (six.includes(prompt)) {
        most = Math.max(most, open.add(prompt).size)
        await until(() => most === 4, 'four at once')
      }
      if (held[prompt]) await until(held[prompt], `what ${prompt} waits for`)
      return (response, ...rest) => {
        response.once('finish', () => {
          if (open.delete(prompt)) done += 1
        })
        answer(response, ...rest)
      }
    },
    { step: STEP, stdin: 'six\nmixed\nall\nagain\n' },
  )
  assert.equal(run.code, 0, run.stderr)
  const resultsOf = (prompt: string, n = 1) => resultsIn(about(run.requests, prompt)[n])

  await t.test('run at once, four at most; results and names keep the order', () => {
    assert.equal(most, 4)
    const { messages } = about(run.requests, 'six')[1]
    const ids = messages.at(-2).content.map(({ id }: Json) => id)
    assert.deepEqual(
      resultsOf('six').map((result) => result.tool_use_id),
      ids,
    )
    for (const [i, { content }] of resultsOf('six').entries()) {
      assert.match(content, new RegExp(`Of six ${i}\\..*resume "sub-${1 + i}"`, 's'))
      assert.equal(laneOf(run, `sub-${1 + i}`).messages[0].content, `six ${i}`)
    }
  })

  await t.test('wait for the other tools before them, and those for all before', () => {
    const saw = ['first', 'second', 'third'].map((prompt) => resultsOf(prompt)[0].content)
    assert.deepEqual(saw, ['one', 'one', 'two'])
    assert.deepEqual(
      resultsOf('mixed').map(({ content }) => content.split('\n').at(3) ?? content),
      [
        ...['Wrote 3 bytes to a.md', 'First.', 'Second.'],
        ...['Wrote 3 bytes to a.md', 'two', 'Third.'],
      ],
    )
  })

  await t.test('are not run where the reply was cut, nor anything else of it', () => {
    const cut = resultsOf('mixed', 2)
    assert.equal(cut.length, 2)
    for (const { content, is_error } of cut) {
      assert.match(content, /^Not run: your reply was cut short/)
      assert.equal(is_error, true)
    }
    assert(!existsSync(join(run.root, '.workspace', STEP, 'cut.md')))
    assert(!asked.includes('never'))
  })

  await t.test('take no other along when they fail, and have one writer each', () => {
    const check = (prompt: string, expected: [failed: boolean, said: RegExp][]) => {
      const results = resultsOf(prompt)
      assert.equal(results.length, expected.length)
      for (const [i, [failed, said]] of expected.entries()) {
        assert.match(results[i].content, said)
        assert.equal(results[i].is_error ?? false, failed, results[i].content)
      }
    }
    check('all', [
      [true, /^crashed: 529 overloaded_error/],
      [true, /^timed_out after 1000 ms, unfinished/],
      [false, /^completed .*It works\./s],
      [true, /^No agent nobody, only scout\.$/],
      [false, /^completed .*It works too\./s],
      [true, /^There is no sub-99 in this run, only sub-/],
      [true, /prompt is missing/],
      [false, /^completed \(2 turns.*It works in the end\./s],
    ])
    check('again', [
      [false, /^completed .*Once more\./s],
      [true, /^sub-12 is still at work: wait for its result\.$/],
      [false, /^completed .*A new child\..*resume "sub-15"\.$/s],
    ])
    // A lane for each that was started, and none for those that were not.
    const children = Array.from({ length: 15 }, (_, i) => `sub-${i + 1}`)
    const lanes = lanesIn(run.root, logFolder(run))
    assert.deepEqual(lanes.sort(), ['parent', ...children].sort())
    for (const name of lanes) assert.notEqual(laneOf(run, name).messages.length, 0)
  })
})

test('Ctrl+C ends the tasks at work, and those in line', posix, async (t) => {
  const prompts = ['1', '2', '3', '4', 'in line 1', 'in line 2']
  const at = (n: number) => ({ [n]: [stall()] })
  const server = await serve(
    t,
    byPrompt({
      all: [calls(write('a.md', 'xy'), ...prompts.map((one) => task(one)), read('a.md'))],
      ...{ ...at(1), ...at(2), ...at(3), ...at(4) },
    }),
  )
  const options = { step: STEP, root: makeRoot(t), dotenv: envFile(server.url) }
  const step = startStep({ ...options, args: ['all'] })
  await until(() => server.requests.length === 5, 'four at work')
  step.child.kill('SIGINT')
  const run = await step.result
  assert.equal(run.code, 130)
  assert.equal(server.requests.length, 5, 'nobody in line has begun')
  assert.deepEqual(server.refused, [])
  const lanes = ['parent', 'sub-1', 'sub-2', 'sub-3', 'sub-4']
  assert.deepEqual(lanesIn(run.root, logFolder(run)), lanes)

  const { messages } = laneOf(run)
  const tools = [{ name: 'any', input_schema: { type: 'object' } }]
  const next = [...messages, { role: 'user', content: 'What now?' }]
  const request = { model: 'any', max_tokens: 1, tools, messages: next }
  assert.equal(requestError(request), undefined)
  const results: Json[] = messages.at(-1)?.content
  assert.deepEqual(
    results.map(({ content, is_error }) => [content.split(/[,.]/)[0], is_error]),
    [
      ['Wrote 2 bytes to a', undefined],
      ...Array(4).fill(['aborted by the user', true]),
      ...Array(3).fill(['Stopped by Ctrl+C', true]),
    ],
  )
})
