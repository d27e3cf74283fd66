/** A live step on a terminal, typed at as a reader does. */
import assert from 'node:assert/strict'
import { spawn, spawnSync } from 'node:child_process'
import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, test } from 'node:test'
import { envFile, laneOf, serve } from './live.ts'
import { type Answer, calls, fail, makeRoot, stall, text, wait } from './server.ts'

// util-linux's `script` runs a command on a terminal of its own; others take other options.
const has = spawnSync('script', ['--version'], { encoding: 'utf8' }).stdout ?? ''
const skip = !has.includes('util-linux') && 'needs `script` of util-linux'

type Context = Parameters<typeof serve>[0]

const NODE = `"${process.execPath}" --import tsx`

/** Starts a step on a terminal of 100 columns. */
async function type(
  t: Context,
  answers: Answer[],
  step: string,
  { args = '', program = NODE, env = {} } = {},
) {
  const server = await serve(t, answers)
  const root = makeRoot(t)
  writeFileSync(join(root, '.env'), envFile(server.url))
  const command = `stty cols 100; exec ${program} steps/${step}.ts ${args}`
  const options = {
    cwd: root,
    env: { PATH: process.env.PATH, HOME: root, TERM: 'xterm', ...env },
  }
  const child = spawn('script', ['-qec', command, '/dev/null'], options)
  // Its terminal goes with it, and the step with that.
  const end = () => child.kill('SIGKILL')
  const timer = setTimeout(end, 30_000)
  t.after(() => {
    clearTimeout(timer)
    end()
  })
  let seen = ''
  let changed = () => {}
  child.stdout.setEncoding('utf8').on('data', (piece) => {
    seen += piece
    changed()
  })
  const code = new Promise<number | null>((done) => child.once('close', done))
  /** Waits until the screen has shown something `times`. */
  const shown = (what: string, times = 1) =>
    new Promise<void>((done, failed) => {
      const late = () => failed(new Error(`never showed ${what}:\n${seen}`))
      const timer = setTimeout(late, 20_000)
      changed = () => {
        if (seen.split(what).length <= times) return
        clearTimeout(timer)
        done()
      }
      changed()
    })
  return {
    server,
    root,
    code,
    shown,
    keys: (text: string) => child.stdin.write(text),
    screen: () => seen,
  }
}

describe('on a terminal', { concurrency: 4, skip }, () => {
  test('the prompt, its offer, who is waited for, a failure, and q', async (t) => {
    const answers = [
      calls({ name: 'task', input: { prompt: 'Go.' } }),
      wait(100, text('Report.')),
      wait(100, text('There it is.')),
      fail(401, 'authentication_error', 'invalid x-api-key'),
      text('The end.'),
    ]
    const step = await type(t, answers, '04-subagent')
    await step.shown('04 > ')
    await step.shown('fix what fails.')
    step.keys('\r')
    await step.shown('There it is.')
    await step.shown('04 > ', 2)
    step.keys('\r')
    await step.shown('04 > ', 3)
    step.keys('second\rand more\r')
    await step.shown('401 authentication_error')
    await step.shown('04 > ', 4)
    step.keys('third\r')
    await step.shown('The end.')
    step.keys('q\r')
    assert.equal(await step.code, 0, step.screen())
    assert.deepEqual(step.server.refused, [])
    assert.deepEqual(
      step.server.requests
        .map(({ body }) => body.messages.at(-1).content)
        .filter((content) => typeof content === 'string'),
      [
        step.server.requests[0].body.messages[0].content,
        'Go.',
        'second\nand more',
        'third',
      ],
    )
    assert.match(
      step.server.requests[0].body.messages[0].content,
      /^Create hello\.mjs: .* fix what fails\.$/,
    )

    const screen = step.screen()
    for (const who of ['parent', 'sub-1']) {
      const line = `… ${who} waits for test-model`
      const [rest] = screen.split(line).slice(-1)
      assert.notEqual(rest, screen, line)
      assert.equal(rest.slice(0, rest.indexOf('\x1b[K')), '\x1b[0m\r', 'taken away')
    }
    assert(screen.includes('\x1b[32m> task Go.\x1b[0m'), 'calls are green')
    assert.match(screen, /^.*04-subagent, live: test-model at http/)
  })

  test('Ctrl+D leaves, and NO_COLOR is obeyed', async (t) => {
    const answers = [wait(50, text('There it is.'))]
    const step = await type(t, answers, '02-tool-use')
    await step.shown('02 > ')
    step.keys('\x04')
    assert.equal(await step.code, 0)
    const typed = await type(t, answers, '02-tool-use')
    await typed.shown('fix what fails.')
    typed.keys('q\r')
    assert.equal(await typed.code, 0)
    assert.equal(typed.server.requests.length, 0, 'a q behind the offer is one')
    const plain = await type(t, answers, '02-tool-use', {
      args: 'Hi.',
      env: { NO_COLOR: '1' },
    })
    assert.equal(await plain.code, 0)
    assert(
      plain.screen().includes('… parent waits for test-model\r\x1b[K'),
      plain.screen(),
    )
    // biome-ignore lint/suspicious/noControlCharactersInRegex: what a terminal is told
    assert.doesNotMatch(plain.screen(), /\x1b\[\d*m/)
    assert.match(plain.screen(), /There it is\./)
  })

  test('Ctrl+C leaves at the prompt and while the model is asked', async (t) => {
    const step = await type(t, [], '02-tool-use')
    await step.shown('02 > ')
    step.keys('\x03')
    assert.equal(await step.code, 130)
    const program = 'node_modules/.bin/tsx' // what `npx tsx` runs, and passes signals on
    const asking = await type(t, [stall()], '02-tool-use', { program })
    await asking.shown('02 > ')
    asking.keys('\r')
    await asking.shown('waits for test-model')
    asking.keys('\x03')
    assert.equal(await asking.code, 130)
    assert.equal(
      laneOf({ stdout: asking.screen(), root: asking.root }).messages.length,
      1,
    )
  })
})
