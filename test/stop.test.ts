/**
 * Steps 07 and 08: what Ctrl+C and timeouts end, and what is left behind. How fast is not
 * measured, since the machine may be busy: a step that does not end is killed and fails.
 */
import assert from 'node:assert/strict'
import { existsSync, mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { constants } from 'node:os'
import { join } from 'node:path'
import { describe, test } from 'node:test'
import { setTimeout as sleep } from 'node:timers/promises'
import { requestError } from '../steps/support/base/protocol.ts'
import {
  type Answer,
  about,
  bash,
  byPrompt,
  type Context,
  calls,
  editStep,
  envFile,
  filesOf,
  isAlive,
  type Json,
  laneOf,
  logFolder,
  makeRoot,
  posix,
  read,
  resultsIn,
  runLive,
  type Server,
  type StepResult,
  serve,
  stall,
  startStep,
  task,
  text,
  until,
  write,
} from './live.ts'
import { noTerminal, onTerminal } from './terminal.ts'

type Signal = 'SIGINT' | 'SIGTERM' | 'SIGHUP' | 'SIGQUIT'

const STOPPED = 'Stopped by Ctrl+C.'

/** Takes no notice of signals, and leaves a grandchild. */
const TRAP = `import { spawn } from 'node:child_process'
import { renameSync, writeFileSync } from 'node:fs'
for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP']) process.on(signal, () => {})
setTimeout(() => {}, 60_000)
if (process.argv[2] !== 'deep') {
  const deep = spawn(process.execPath, ['trap.mjs', 'deep'], { stdio: 'ignore' })
  console.log('trapped')
  writeFileSync('pids.tmp', process.pid + ' ' + deep.pid)
  renameSync('pids.tmp', 'pids')
}
`
const trap = [write('trap.mjs', TRAP), bash('node trap.mjs')]

/** A killed process may need a moment to be gone. */
const assertGone = (pids: number[]) =>
  until(() => !pids.some(isAlive), `the end of ${pids}`)

/** The processes of a trap that has gone off. */
async function trapped(workdir: string): Promise<number[]> {
  const path = join(workdir, 'pids')
  await until(() => existsSync(path), 'the trap')
  const pids = readFileSync(path, 'utf8').split(' ').map(Number)
  rmSync(path)
  assert.deepEqual(pids.map(isAlive), [true, true])
  return pids
}

type Moment = { scripts: Record<string, Answer[]>; asked?: string }

/** In what a run may be interrupted: the answers until then, and how one sees it. */
const MOMENTS: Record<string, (parent: string, child: string) => Moment> = {
  "the parent's model call": (parent) => ({
    scripts: { [parent]: [stall()] },
    asked: parent,
  }),
  "the parent's tool": (parent) => ({
    scripts: { [parent]: [calls(...trap, write('no.md', ''))] },
  }),
  "a child's model call": (parent, child) => ({
    scripts: { [parent]: [calls(task(child), task('later'))], [child]: [stall()] },
    asked: child,
  }),
  "a child's tool": (parent, child) => ({
    scripts: {
      [parent]: [calls(task(child), task('later'), write('no.md', ''))],
      [child]: [calls({ text: 'I look.' }, ...trap, write('no.md', ''))],
    },
  }),
}

/** Waits until the run is in its moment; returns the processes to be ended with it. */
async function reach(server: Server, workdir: string, asked?: string): Promise<number[]> {
  if (!asked) return trapped(workdir)
  const bodies = () => server.requests.map(({ body }) => body)
  await until(() => about(bodies(), asked).length > 0, `a request about ${asked}`)
  return []
}

/** Starts a step, interrupts it in its moment, and waits for its end. */
async function interrupt(t: Context, step: string, name: string, signal: Signal) {
  const { scripts, asked } = MOMENTS[name]('parent', 'child')
  const server = await serve(t, byPrompt(scripts))
  const root = makeRoot(t)
  const stdin = 'parent\nafter\n'
  const run = startStep({ step, root, stdin, dotenv: envFile(server.url) })
  const pids = await reach(server, join(root, '.workspace', step), asked)
  run.child.kill(signal)
  const result = await run.result
  assert.deepEqual(server.refused, [])
  await assertGone(pids)
  return result
}

/** Every lane of a run can be continued: no call is open in it. */
function assertAccepted(run: StepResult): void {
  const files = Object.keys(filesOf(join(run.root, logFolder(run))))
  for (const file of files.filter((name) => name.endsWith('.log'))) {
    const { header, messages } = laneOf(run, file.replace('.log', ''))
    const next = [...messages, { role: 'user', content: 'Go on.' }]
    const body = { model: 'm', max_tokens: 1, tools: header.tools, messages: next }
    assert.equal(requestError(body), undefined, file)
  }
}

/** What the last calls of a lane came to; `✗` is `is_error`. */
const resultsOf = (run: StepResult, lane: string): string[] => {
  const content = laneOf(run, lane).messages.at(-1)?.content
  if (!Array.isArray(content)) return []
  return content.map((result: Json) => (result.is_error ? '✗ ' : '') + result.content)
}

describe('stop', { concurrency: 2 }, () => {
  describe('Ctrl+C off a terminal ends all', { concurrency: 4, ...posix }, () => {
    const not = `✗ ${STOPPED}`
    const tool = ['Wrote ', 'trapped\n(stopped: the run was stopped)', not]
    const aborted =
      '✗ aborted by the user, unfinished (1 turn, 10 tokens in, 5 out)\n\n' +
      'Its last words, no report:\nI look.\n\n'
    /** In which moment of which step, and how the results begin, in each lane. */
    // biome-ignore format: a table
    const ENDS: [step: string, name: string, parent: string[], child?: string[]][] = [
      ['07-stop', "the parent's model call", []],
      ['07-stop', "the parent's tool", tool],
      ['07-stop', "a child's model call", [not, not], []],
      ['08-failure', "a child's tool", [aborted, not, not], tool],
    ]
    for (const [step, name, parent, child] of ENDS) {
      test(`${step}, in ${name}`, async (t) => {
        const run = await interrupt(t, step, name, 'SIGINT')
        assert.equal(run.code, 130, run.stderr)
        const isCalling = name === "the parent's model call"
        const said = isCalling
          ? /^stopped before an answer came \(.*\)\n$/
          : /^Stopped by Ctrl\+C\.\n$/
        assert.match(run.stderr, said)
        assert.match(run.stdout, /\nparent: \d messages?, .*\n(.*\n)*log: /)
        assert.doesNotMatch(run.stdout, /\nafter\n/, 'the next prompt is not begun')
        assertAccepted(run)
        assert(!existsSync(join(run.root, '.workspace', step, 'no.md')))
        const lanes = { parent, ...(child && { 'sub-1': child }) }
        for (const [lane, begins] of Object.entries(lanes)) {
          const results = resultsOf(run, lane)
          const begun = results.map((said, i) => said.slice(0, begins[i]?.length))
          assert.deepEqual(begun, begins)
        }
      })
    }
  })

  describe('simply the end', { concurrency: 4, ...posix }, () => {
    // Before step 07 by Ctrl+C, too; by other signals in every step.
    const ENDS: [step: string, name: string, signal: Signal][] = [
      ['01-agent-loop', "the parent's model call", 'SIGQUIT'],
      ['02-tool-use', "the parent's tool", 'SIGINT'],
      ['04-subagent', "a child's tool", 'SIGHUP'],
      ['06-tool-gate', "a child's model call", 'SIGINT'],
      ['07-stop', "a child's tool", 'SIGTERM'],
    ]
    for (const [step, name, signal] of ENDS) {
      test(`${step}, by ${signal} in ${name}`, async (t) => {
        const run = await interrupt(t, step, name, signal)
        const code = 128 + constants.signals[signal]
        assert.deepEqual([run.code, run.signal, run.stderr], [code, null, ''])
      })
    }
  })

  describe('a tool that takes no notice', { concurrency: 4, ...posix }, () => {
    /** Starts 07 with a bash that never ends, does this, and keeps the process alive. */
    async function start(t: Context, does: string, scripts: Record<string, Answer[]>) {
      const root = makeRoot(t)
      const never = `new Promise(() => { setInterval(() => {}, 1000); ${does} })`
      editStep(root, '07-stop', '= [bash,', `= [{ ...bash, run: () => ${never} },`)
      const server = await serve(t, byPrompt(scripts))
      const stdin = `${Object.keys(scripts)[0]}\n`
      const dotenv = envFile(server.url)
      return startStep({ step: '07-stop', root, stdin, dotenv })
    }
    const parent = { parent: [calls(bash('node a.mjs'))] }
    // The signals come from within, where a busy machine cannot move them apart.
    const signal = "process.kill(process.pid, 'SIGINT')"

    test('does not hold the run', async (t) => {
      const run = await start(t, '', {
        parent: [calls(task('child', { timeoutMs: 1500 })), calls(bash('node b.mjs'))],
        child: [calls(bash('node a.mjs'))],
      })
      await run.output('node b.mjs') // by then the timeout has ended the child
      run.child.kill('SIGINT')
      const result = await run.result
      assert.match(result.stdout, /\nlog: /)
      assertAccepted(result)
      assert.equal(result.code, 130, 'the run has ended, but its program has not')
    })

    test('two signals within 200 ms are one', async (t) => {
      // Not quite at once, or the system makes them one.
      const nap = 'Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 20)'
      const run = await start(t, `${signal}; ${nap}; ${signal}`, parent)
      const { stdout, code } = await run.result
      assert.match(stdout, /✗ Stopped by Ctrl\+C\.\nparent: 3 messages/)
      assert.equal(code, 130)
    })

    test('a second Ctrl+C later than that ends the program at once', async (t) => {
      const later = "setTimeout(() => process.emit('SIGINT'), 300)"
      const run = await start(
        t,
        `process.once('SIGINT', () => ${later}); ${signal}`,
        parent,
      )
      const { stdout, code } = await run.result
      assert.doesNotMatch(stdout, /✗|\nparent: /)
      assert.equal(code, 130)
    })
  })

  test("a timeout: the call's, the profile's, or the default; the parent goes on", async (t) => {
    const root = makeRoot(t)
    editStep(root, '07-stop', '60 * 60_000', '1200')
    const workdir = join(root, '.workspace', '07-stop')
    mkdirSync(join(workdir, '.agents'), { recursive: true })
    const profile = '---\nname: quick\ndescription: Quick.\ntimeout: 3000\n---\n'
    writeFileSync(join(workdir, '.agents', 'quick.md'), profile)
    const start = performance.now()
    const run = await runLive(
      t,
      byPrompt({
        call: [calls(task('a', { timeoutMs: 1000, agent: 'quick' })), text('Went on.')],
        a: [calls(read('no')), stall()],
        profile: [calls(task('b', { agent: 'quick' })), text('Went on.')],
        b: [calls(...trap, write('no.md', ''))],
        default: [calls(task('c')), text('Went on.')],
        c: [stall()],
      }),
      { step: '07-stop', stdin: 'call\nprofile\ndefault\n', root },
    )
    const took = performance.now() - start
    assert.equal(run.code, 0)
    assert.equal(run.stdout.split('\nWent on.\n').length - 1, 3)
    for (const [prompt, ms] of Object.entries({
      call: 1000,
      profile: 3000,
      default: 1200,
    })) {
      const [{ content, is_error }] = resultsIn(about(run.requests, prompt)[1])
      const said = `The subagent timed out after ${ms} ms.`
      assert.deepEqual([content, is_error], [said, true])
    }
    // All of them, since a busy machine may see a request late. Timers count in ms.
    const least = 1000 + 3000 + 1200 - 3
    assert(took > least, `${took} ms`)
    assert.equal(laneOf(run, 'sub-1').events[0].event, 'no_answer')
    assertAccepted(run)
    // Of a tool that was at work nothing is left, and what stood behind it was not run.
    const pids = readFileSync(join(workdir, 'pids'), 'utf8').split(' ').map(Number)
    await assertGone(pids)
    assert(!existsSync(join(workdir, 'no.md')))
  })

  describe('on a terminal', { concurrency: 4, skip: noTerminal() }, () => {
    test('the prompt comes back, and the API takes what follows', async (t) => {
      const root = makeRoot(t)
      const workdir = join(root, '.workspace', '08-failure')
      // Here no default applies; else a child would end by itself.
      editStep(root, '08-failure', '60 * 60_000', '300')
      const ask = write('no.txt', '')
      const scripts: Record<string, Answer[]> = {
        ask: [calls(task('asking'), write('no.md', ''))],
        asking: [calls(ask, write('no.md', ''))],
        after: [text('Goodbye.')],
      }
      const moments = Object.keys(MOMENTS).map((name, i) => {
        const moment = MOMENTS[name](`parent ${i}`, `child ${i}`)
        Object.assign(scripts, moment.scripts)
        return { name, asked: moment.asked }
      })
      const server = await serve(t, byPrompt(scripts))
      writeFileSync(join(root, '.env'), envFile(server.url))
      const terminal = onTerminal(t, '08-failure', root)
      const prompt = '08 > '
      await terminal.shows(prompt)
      terminal.type('\x15') // Ctrl+U: the step's own prompt is offered
      for (const [i, { name, asked }] of moments.entries()) {
        terminal.type(`parent ${i}\r`)
        const pids = await reach(server, workdir, asked)
        await sleep(400)
        terminal.type('\x03')
        const calling = name === "the parent's model call"
        await terminal.shows(calling ? 'stopped before an answer' : STOPPED)
        await terminal.shows(prompt)
        await assertGone(pids)
      }
      terminal.type('ask\r')
      await terminal.shows('Allow it? [y/N] ')
      await sleep(400)
      terminal.type('\x03')
      await terminal.shows(STOPPED)
      await terminal.shows(prompt)
      terminal.type('after\r')
      await terminal.shows('Goodbye.')
      await terminal.shows(prompt)
      await sleep(300)
      terminal.type('\x03')
      assert.equal(await terminal.code, 130, 'at the prompt it ends the program')

      assert.deepEqual(server.refused, [])
      const last = server.requests.at(-1)?.body.messages
      assert.equal(last.at(-1).content, 'after')
      const told = JSON.stringify(last)
      assert.doesNotMatch(told, /timed.out/)
      for (const name of ['no.md', 'no.txt']) assert(!existsSync(join(workdir, name)))
      assert.match(told, /aborted by the user, unfinished/)
    })

    test('a timeout does not wait for the answer to a question', async (t) => {
      const root = makeRoot(t)
      const server = await serve(
        t,
        byPrompt({
          parent: [calls(task('child', { timeoutMs: 1000 })), text('Went on.')],
          child: [calls(write('late.txt', ''))],
        }),
      )
      writeFileSync(join(root, '.env'), envFile(server.url))
      const terminal = onTerminal(t, '07-stop', root)
      await terminal.shows('07 > ')
      terminal.type('\x15parent\r')
      await terminal.shows('Allow it? [y/N] ')
      await until(() => server.requests.length === 3, 'the parent going on')
      await terminal.shows('Went on.')
      assert(!existsSync(join(root, '.workspace', '07-stop', 'late.txt')))
    })
  })
})
