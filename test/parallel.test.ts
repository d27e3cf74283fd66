/** Step 10: several tasks in one reply, at once, in order, each for itself. */
import assert from 'node:assert/strict'
import { existsSync } from 'node:fs'
import { join } from 'node:path'
import { describe, test } from 'node:test'
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

describe('the tasks of a reply', { concurrency: 4 }, () => {
  test('run at once, four at most; results and names keep the order', async (t) => {
    const six = [0, 1, 2, 3, 4, 5].map((i) => `six ${i}`)
    const script = byPrompt({
      six: [calls(...six.map((prompt) => task(prompt))), text('Six.')],
      ...Object.fromEntries(six.map((prompt) => [prompt, [text(`Of ${prompt}.`)]])),
    })
    const open = new Set<string>()
    let [most, done] = [0, 0]
    const run = await runLive(
      t,
      async (body, n) => {
        const prompt = promptOf(body)
        const answer = await script(body, n)
        if (prompt === 'six') return answer
        most = Math.max(most, open.add(prompt).size)
        await until(() => most === 4, 'four at once')
        // The first is the slowest: whoever is faster, the order stays.
        if (prompt === 'six 0') await until(() => done === 5, 'the others')
        return (response, ...rest) => {
          response.once('finish', () => {
            done += 1
            open.delete(prompt)
          })
          answer(response, ...rest)
        }
      },
      { step: STEP, args: ['six'] },
    )
    assert.equal(run.code, 0, run.stderr)
    assert.equal(most, 4)
    const { messages } = about(run.requests, 'six')[1]
    const results: Json[] = messages.at(-1).content
    const ids = messages.at(-2).content.map(({ id }: Json) => id)
    assert.deepEqual(
      results.map((result) => result.tool_use_id),
      ids,
    )
    for (const [i, { content }] of results.entries()) {
      assert.match(content, new RegExp(`Of six ${i}\\..*resume "sub-${1 + i}"`, 's'))
      assert.equal(laneOf(run, `sub-${1 + i}`).messages[0].content, `six ${i}`)
    }
  })

  test('wait for the other tools before them, and those for all before', async (t) => {
    const script = byPrompt({
      mixed: [
        calls(
          ...[write('a.md', 'one'), task('first'), task('second')],
          ...[write('a.md', 'two'), read('a.md'), task('third')],
        ),
        calls(task('never'), write('cut.md', 'x'), { stop_reason: 'max_tokens' }),
        text('Mixed.'),
      ],
      first: [calls(read('a.md')), text('First.')],
      second: [calls(read('a.md')), text('Second.')],
      third: [calls(read('a.md')), text('Third.')],
    })
    const asked = new Set<string>()
    const run = await runLive(
      t,
      async (body, n) => {
        asked.add(promptOf(body))
        if (promptOf(body) === 'first') await until(() => asked.has('second'))
        return script(body, n)
      },
      { step: STEP, args: ['mixed'] },
    )
    assert.equal(run.code, 0, run.stderr)
    const saw = (prompt: string) => resultsIn(about(run.requests, prompt)[1])[0].content
    assert.deepEqual(['first', 'second', 'third'].map(saw), ['one', 'one', 'two'])
    const results = resultsIn(about(run.requests, 'mixed')[1])
    assert.deepEqual(
      results.map(({ content }) => content.split('\n').at(3) ?? content),
      [
        ...['Wrote 3 bytes to a.md', 'First.', 'Second.'],
        ...['Wrote 3 bytes to a.md', 'two', 'Third.'],
      ],
    )

    // A reply that was cut: nothing of it is run.
    const cut = resultsIn(about(run.requests, 'mixed')[2])
    assert.equal(cut.length, 2)
    for (const { content, is_error } of cut) {
      assert.match(content, /^Not run: your reply was cut short/)
      assert.equal(is_error, true)
    }
    assert(!existsSync(join(run.root, '.workspace', STEP, 'cut.md')))
    const lanes = lanesIn(run.root, logFolder(run))
    assert.deepEqual(lanes, ['parent', 'sub-1', 'sub-2', 'sub-3'])
  })

  test('take no other along when they fail, and have one writer each', async (t) => {
    const script = byPrompt({
      all: [
        calls(
          ...[task('fails'), task('slow', { timeoutMs: 1000 }), task('works')],
          ...[task('refused', { agent: 'nobody' }), task('works too')],
          ...[resume('sub-9', 'never'), { name: 'task' }, task('long')],
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
          ...[resume('sub-3', 'once'), resume('sub-3', 'twice')],
          task('new', { resume: '', agent: '' }),
        ),
        text('So.'),
      ],
      [`once${CHANGED}`]: [text('Once more.')],
      [`twice${CHANGED}`]: [text('Both write one lane.')],
      new: [text('A new child.')],
    })
    const asked: string[] = []
    const run = await runLive(
      t,
      async (body, n) => {
        const prompt = promptOf(body)
        asked.push(prompt)
        const failed = () => asked.filter((one) => one === 'fails').length === 3
        if (prompt === 'works') await until(failed, 'the end of another')
        if (prompt.startsWith('once')) await until(() => asked.includes('new'))
        return script(body, n)
      },
      { step: STEP, stdin: 'all\nagain\n' },
    )
    assert.equal(run.code, 0, run.stderr)
    const check = (prompt: string, expected: [failed: boolean, said: RegExp][]) => {
      const results = resultsIn(about(run.requests, prompt)[1])
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
      [true, /^There is no sub-9 in this run, only sub-/],
      [true, /prompt is missing/],
      [false, /^completed \(2 turns.*It works in the end\./s],
    ])
    check('again', [
      [false, /^completed .*Once more\./s],
      [true, /^sub-3 is still at work: wait for its result\.$/],
      [false, /^completed .*A new child\..*resume "sub-\d"\.$/s],
    ])
    for (const name of lanesIn(run.root, logFolder(run)))
      assert.notEqual(laneOf(run, name).messages.length, 0, `${name} was started`)
  })

  test('stop at Ctrl+C: those at work, and those in line', posix, async (t) => {
    const prompts = ['1', '2', '3', '4', 'in line 1', 'in line 2']
    const at = (n: number) => ({ [n]: [stall()] })
    const server = await serve(
      t,
      byPrompt({
        all: [
          calls(write('a.md', 'xy'), ...prompts.map((one) => task(one)), read('a.md')),
        ],
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
})
