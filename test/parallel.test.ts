/** Several tasks in one reply: at once, in order, each for itself. */
import assert from 'node:assert/strict'
import * as fs from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { describe, test } from 'node:test'
import { setTimeout as sleep } from 'node:timers/promises'
import { requestError } from '../steps/support/base/protocol.ts'
import { atMost } from '../steps/support/tools/parallel.ts'
import {
  about,
  byPrompt,
  envFile,
  laneOf,
  logFolder,
  promptOf,
  resultsIn,
  runLive,
  serve,
} from './live.ts'
import {
  calls,
  fail,
  type Json,
  makeRoot,
  stall,
  startStep,
  text,
  wait,
} from './server.ts'

const STEP = '10-parallel'
const CHANGED = '\n\n(Files may have changed: read again what you rely on.)'
const posix = { skip: process.platform === 'win32' && 'needs signals' }

const task = (prompt: string, more: Json = {}) => ({
  name: 'task',
  input: { prompt, ...more },
})
const write = (path: string, content: string) => ({
  name: 'write_file',
  input: { path, content },
})
const read = (path: string) => ({ name: 'read_file', input: { path } })
const bash = (command: string) => ({ name: 'bash', input: { command } })
/** Writes a file, but not at once. */
const SLOW = `import { writeFileSync } from 'node:fs'
setTimeout(() => writeFileSync('order.md', 'first'), 100)`
const overloaded = fail(529, 'overloaded_error', 'Overloaded', { 'retry-after-ms': '1' })
const lanesIn = (root: string, folder: string) =>
  fs.readdirSync(join(root, folder)).sort()

async function until(condition: () => boolean): Promise<void> {
  for (const start = Date.now(); !condition(); await sleep(10)) {
    if (Date.now() - start > 15_000) throw new Error(`Waited in vain for ${condition}`)
  }
}

describe('the tasks of a reply', { concurrency: 4 }, () => {
  test('run at once, four at most; results and names keep the order', async (t) => {
    const open = new Map<string, Set<string>>()
    let most: Record<string, number> = {}
    /** None of a kind is answered before so many are there. */
    const atLeast: Record<string, number> = { six: 4, mixed: 2 }
    const six = [0, 1, 2, 3, 4, 5].map((i) => `six ${i}`)
    const script = byPrompt({
      six: [calls(...six.map((prompt) => task(prompt))), text('Six.')],
      // The first is the slowest: whoever is faster, the order stays.
      ...Object.fromEntries(
        six.map((prompt, i) => [
          prompt,
          [wait(50 * (5 - i), text(`Report of ${prompt}.`))],
        ]),
      ),
      mixed: [
        calls(
          ...[write('slow.mjs', SLOW), task('mixed 0'), bash('node slow.mjs')],
          ...[read('order.md'), task('mixed 1'), write('order.md', 'second')],
          read('order.md'),
        ),
        text('Mixed.'),
      ],
      'mixed 0': [wait(100, text('Late.'))],
      'mixed 1': [text('Soon.')],
    })
    const run = await runLive(
      t,
      async (body, n) => {
        const [kind, i] = promptOf(body).split(' ')
        const answer = await script(body, n)
        if (i === undefined) return answer
        const now = open.get(kind) ?? new Set()
        open.set(kind, now.add(i))
        most = { ...most, [kind]: Math.max(most[kind] ?? 0, now.size) }
        await until(() => most[kind] >= atLeast[kind])
        return (response, ...rest) => {
          response.once('finish', () => now.delete(i))
          answer(response, ...rest)
        }
      },
      { step: STEP, stdin: 'six\nmixed\n' },
    )
    assert.equal(run.code, 0, run.stderr)
    assert.deepEqual(most, { six: 4, mixed: 2 })

    const resultsOf = (prompt: string) =>
      resultsIn(about(run.requests, prompt).at(-1) as Json)
    const ids = (blocks: Json[]) => blocks.map(({ id, tool_use_id }) => id ?? tool_use_id)
    for (const prompt of ['six', 'mixed']) {
      const { messages } = about(run.requests, prompt).at(-1) as Json
      assert.deepEqual(ids(resultsOf(prompt)), ids(messages.at(-2).content))
      assert.equal(messages.at(-1).content.length, resultsOf(prompt).length)
    }
    for (const [i, { content }] of resultsOf('six').entries()) {
      assert.match(
        content,
        new RegExp(`Report of six ${i}\\..*resume "sub-${1 + i}"`, 's'),
      )
      assert.equal(laneOf(run, `sub-${1 + i}`).messages[0].content, `six ${i}`)
    }
    assert.deepEqual(
      resultsOf('mixed').map(
        ({ content }) => content.trim().split('\n').at(2) ?? content,
      ),
      [
        ...[`Wrote ${SLOW.length} bytes to slow.mjs`, 'Its report:', '(no output)'],
        ...['first', 'Its report:', 'Wrote 6 bytes to order.md', 'second'],
      ],
    )
  })

  test('one that fails takes no other with it', async (t) => {
    const run = await runLive(
      t,
      byPrompt({
        all: [
          calls(
            ...[task('fails'), task('slow', { timeoutMs: 1000 }), task('works')],
            ...[task('refused', { agent: 'nobody' }), task('works too')],
            ...[task('never', { resume: 'sub-9' }), { name: 'task' }, task('long')],
          ),
          text('So.'),
        ],
        fails: [overloaded, overloaded, overloaded],
        slow: [stall()],
        works: [wait(300, text('It works.'))],
        'works too': [text('It works too.')],
        long: [calls(read('README.md')), text('It works in the end.')],
        again: [
          calls(
            task('once', { resume: 'sub-3' }),
            task('twice', { resume: 'sub-3' }),
            task('new', { resume: '', agent: '' }),
          ),
          text('So.'),
        ],
        [`once${CHANGED}`]: [wait(200, text('Once more.'))],
        [`twice${CHANGED}`]: [text('Both write one lane.')],
        new: [text('A new child.')],
      }),
      { step: STEP, stdin: 'all\nagain\n' },
    )
    assert.equal(run.code, 0, run.stderr)
    const results = resultsIn(about(run.requests, 'all')[1])
    const expected: [boolean, RegExp][] = [
      [true, /^crashed: 529 overloaded_error.*\(0 turns\)/],
      [true, /^timed_out after 1000 ms, unfinished \(0 turns\)/],
      [false, /^completed \(1 turn.*It works\./s],
      [true, /^No agent nobody, only scout\.$/],
      [false, /^completed \(1 turn.*It works too\./s],
      [true, /^There is no sub-9 in this run, only sub-/],
      [true, /prompt is missing/],
      [false, /^completed \(2 turns.*It works in the end\./s],
    ]
    assert.equal(results.length, expected.length)
    for (const [i, [failed, said]] of expected.entries()) {
      assert.match(results[i].content, said)
      assert.equal(results[i].is_error ?? false, failed, results[i].content)
    }
    const again = resultsIn(about(run.requests, 'again')[1])
    assert.match(again[0].content, /^completed .*Once more\./s)
    assert.equal(again[1].content, 'sub-3 is still at work: wait for its result.')
    assert.equal(again[1].is_error, true)
    assert.match(again[2].content, /^completed .*A new child\..*resume "sub-\d"\.$/s)
    for (const name of lanesIn(run.root, logFolder(run))) {
      assert.match(name, /^(parent|sub-\d)\.log$/)
      const { messages } = laneOf(run, name.slice(0, -4))
      assert.notEqual(messages.length, 0, `${name} is the lane of one that was started`)
    }
  })

  test('Ctrl+C stops all: those at work, and those in line', posix, async (t) => {
    const workdir = fs.realpathSync(fs.mkdtempSync(join(tmpdir(), 'parallel-test-')))
    t.after(() => fs.rmSync(workdir, { recursive: true, force: true }))
    const hang = `import { appendFileSync } from 'node:fs'
      process.on('SIGTERM', () => {})
      appendFileSync('pids', process.pid + '\\n')
      setInterval(() => {}, 1000)`
    fs.writeFileSync(join(workdir, 'hang.mjs'), hang)
    const tool = calls(bash('node hang.mjs'))
    const prompts = ['tool 1', 'tool 2', 'model 1', 'model 2', 'in line 1', 'in line 2']
    const server = await serve(
      t,
      byPrompt({
        all: [calls(...prompts.map((prompt) => task(prompt)), read('hang.mjs'))],
        ...{ 'tool 1': [tool], 'tool 2': [tool] },
        ...{ 'model 1': [stall()], 'model 2': [stall()] },
      }),
    )
    const root = makeRoot(t)
    const run = startStep({
      step: STEP,
      args: ['all'],
      root,
      env: { WORKDIR: workdir },
      dotenv: envFile(server.url),
    })
    const pids = () => {
      const path = join(workdir, 'pids')
      const lines = fs.existsSync(path) ? fs.readFileSync(path, 'utf8').split('\n') : []
      return lines.filter(Boolean).map(Number)
    }
    await until(() => pids().length === 2 && server.requests.length === 5)
    const pressed = performance.now()
    run.child.kill('SIGINT')
    const { code, stdout } = await run.result
    assert(performance.now() - pressed < 10_000, 'it ends soon')
    assert.equal(code, 130)
    for (const pid of pids()) assert.throws(() => process.kill(pid, 0), /ESRCH/)
    assert.equal(server.requests.length, 5, 'nobody in line has begun')
    assert.deepEqual(server.refused, [])

    const folder = logFolder({ stdout })
    const names = [1, 2, 3, 4].map((n) => `sub-${n}.log`)
    assert.deepEqual(lanesIn(root, folder), ['parent.log', ...names])
    const { messages } = laneOf({ ...(await run.result), root })
    const prompt = { role: 'user', content: 'What now?' }
    const tools = [{ name: 'any', input_schema: { type: 'object' } }]
    const next = { model: 'any', max_tokens: 1, tools, messages: [...messages, prompt] }
    assert.equal(requestError(next), undefined)
    const results = messages.at(-1)?.content
    assert.equal(results.length, 7)
    for (const { content } of results.slice(0, 4)) {
      assert.match(content, /^aborted by the user, unfinished/)
    }
    for (const { content, is_error } of results.slice(4, 6)) {
      assert.match(content, /^Stopped by Ctrl\+C\.$/)
      assert.equal(is_error, true)
    }
    assert.match(results[6].content, /setInterval/, 'what was done stays')
  })
})

describe('atMost', () => {
  test('keeps the order and the limit, and a failure frees its place', async () => {
    const inTurn = atMost(2)
    const began: number[] = []
    let [running, most] = [0, 0]
    const jobs = [30, 10, 20, 0, 5].map((ms, i) =>
      inTurn(async () => {
        began.push(i)
        most = Math.max(most, ++running)
        await sleep(ms)
        running -= 1
        if (i % 2 === 1) throw new Error(`${i} failed`)
        return i
      }),
    )
    const ends = await Promise.allSettled(jobs)
    assert.deepEqual(
      ends.map((end) => (end.status === 'fulfilled' ? end.value : end.reason.message)),
      [0, '1 failed', 2, '3 failed', 4],
    )
    assert.deepEqual(began, [0, 1, 2, 3, 4])
    assert.equal(most, 2)
  })
})
