/** A live step on a terminal, typed at as a reader does. */
import assert from 'node:assert/strict'
import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, test } from 'node:test'
import { stripVTControlCharacters } from 'node:util'
import { widthOf } from '../steps/support/base/width.ts'
import { envFile, laneOf, serve } from './live.ts'
import { type Answer, calls, fail, makeRoot, stall, text, wait } from './server.ts'
import { noTerminal, onTerminal } from './terminal.ts'

type Options = Parameters<typeof onTerminal>[3] & { more?: string; source?: string }

/** Starts a step, maybe one of this `source`, on a terminal of 100 columns, in colour. */
async function start(
  t: Parameters<typeof serve>[0],
  answers: Answer[],
  step: string,
  { more, source, env, ...options }: Options = {},
) {
  const server = await serve(t, answers)
  const root = makeRoot(t)
  writeFileSync(join(root, '.env'), envFile(server.url, more))
  if (source) writeFileSync(join(root, 'steps', `${step}.ts`), source)
  const colour = { columns: 100, env: { NO_COLOR: '', ...env } }
  return { server, root, ...onTerminal(t, step, root, { ...colour, ...options }) }
}

describe('on a terminal', { concurrency: 4, skip: noTerminal() }, () => {
  test('the prompt, its offer, who is waited for, a failure, and q', async (t) => {
    const answers = [
      calls({ name: 'task', input: { prompt: 'Go.' } }),
      wait(100, text('Report.')),
      wait(100, text('There it is.')),
      fail(401, 'authentication_error', 'invalid x-api-key'),
      text('The end.'),
    ]
    const step = await start(t, answers, '04-subagent')
    await step.shows('04 > ')
    await step.shows('fix what fails.')
    step.type('\r')
    await step.shows('There it is.')
    await step.shows('04 > ')
    step.type('\r')
    await step.shows('04 > ')
    step.type('second\rand more\r')
    await step.shows('401 authentication_error')
    await step.shows('04 > ')
    step.type('third\r')
    await step.shows('The end.')
    step.type('q\r')
    assert.equal(await step.code, 0, step.screen())
    assert.deepEqual(step.server.refused, [])
    const told = step.server.requests.map(({ body }) => body.messages.at(-1).content)
    const [first, ...rest] = told.filter((content) => typeof content === 'string')
    assert.match(first, /^Create hello\.mjs: .* fix what fails\.$/)
    assert.deepEqual(rest, ['Go.', 'second\nand more', 'third'])

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

  test('Ctrl+D leaves, a q behind the offer does, and NO_COLOR is obeyed', async (t) => {
    const answers = [wait(50, text('There it is.'))]
    for (const keys of ['\x04', 'q\r']) {
      const step = await start(t, answers, '02-tool-use')
      await step.shows('fix what fails.')
      step.type(keys)
      assert.equal(await step.code, 0, step.screen())
      assert.equal(step.server.requests.length, 0)
    }
    const options = { args: 'Hi.', env: { NO_COLOR: '1' } }
    const plain = await start(t, answers, '02-tool-use', options)
    assert.equal(await plain.code, 0)
    assert(plain.screen().includes('… parent waits for test-model\r\x1b[K'))
    // biome-ignore lint/suspicious/noControlCharactersInRegex: what a terminal is told
    assert.doesNotMatch(plain.screen(), /\x1b\[\d*m/)
    assert.match(plain.screen(), /There it is\./)
  })

  test('what is offered is not sent by a line break in it', async (t) => {
    const source = `import { openSession } from './support/session.ts'
const session = openSession(import.meta.filename)
await session.run('one\\ntwo', async () => ({ stopReason: 'end_turn', text: 'x' }))\n`
    const step = await start(t, [], '04-broken', { source })
    await step.shows('04 > ')
    await step.shows('one two')
    step.type('\x04')
    assert.equal(await step.code, 0, step.screen())
  })

  test('a line is cut by its width, and no character in half', async (t) => {
    const command = `echo ${'中文🙂'.repeat(40)}`
    const answers = [
      calls({ name: 'bash', input: { command } }),
      calls({ name: 'read_file', input: { path: `a${'🙂'.repeat(60)}` } }),
      wait(100, text('Done.')),
    ]
    const options = { args: 'Hi.', more: `MODEL_ID=m${'模型🙂'.repeat(30)}\n` }
    const step = await start(t, answers, '02-tool-use', options)
    assert.equal(await step.code, 0, step.screen())
    const rows = stripVTControlCharacters(step.screen()).split(/[\r\n]+/)
    for (const [mark, most] of Object.entries({ '>': 80, '✗': 80, '…': 99 })) {
      const row = rows.find((row) => row.startsWith(`${mark} `)) ?? ''
      assert.match(row, /…$/, mark)
      assert(widthOf(row) <= most && widthOf(row) >= most - 1, `${widthOf(row)}: ${row}`)
      assert.doesNotMatch(row, /\p{Cs}/u)
    }
  })

  test('Ctrl+C leaves at the prompt and while the model is asked', async (t) => {
    const step = await start(t, [], '02-tool-use')
    await step.shows('02 > ')
    step.type('\x03')
    assert.equal(await step.code, 130)
    const program = 'node_modules/.bin/tsx' // what `npx tsx` runs, and passes signals on
    const asking = await start(t, [stall()], '02-tool-use', { program })
    await asking.shows('02 > ')
    asking.type('\r')
    await asking.shows('waits for test-model')
    asking.type('\x03')
    assert.equal(await asking.code, 130)
    const { messages } = laneOf({ stdout: asking.screen(), root: asking.root })
    assert.equal(messages.length, 1)
  })
})
