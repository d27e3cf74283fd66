/** Step 06: what runs unasked, what is refused, and how the reader is asked. */
import assert from 'node:assert/strict'
import { existsSync, readdirSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, test } from 'node:test'
import { setTimeout as sleep } from 'node:timers/promises'
import { readFolder } from '../steps/support/base/lane-file.ts'
import {
  about,
  bash,
  byPrompt,
  calls,
  envFile,
  filesOf,
  type Json,
  makeRoot,
  resultsIn,
  runLive,
  serve,
  task,
  text,
  write,
} from './live.ts'
import { noTerminal, onTerminal } from './terminal.ts'

const STEP = '06-tool-gate'
const PATHS = '/^[\\w/-]+\\.(mjs|md)$/'
const RULES: Record<string, string> = {
  bash: '/^node \\w[\\w/-]*\\.mjs$/',
  write_file: PATHS,
  edit_file: PATHS,
}

// The calls stand in the recording; all but the first five would leave a file named no.
test('without a terminal rules decide, in both lanes, and nothing else runs', () => {
  const folder = join(import.meta.dirname, 'scenarios', `${STEP}.rules`)
  for (const { name, messages } of readFolder(folder)) {
    const [asked, told] = messages.slice(1, 3).map(({ content }) => content as Json[])
    assert(asked.length > 40)
    for (const [i, { content, is_error }] of told.entries()) {
      const tool = asked[i].name
      const refused = `Refused, not run. Of ${tool} only ${RULES[tool]} may run.`
      const at = `${name}: ${JSON.stringify(asked[i].input)}`
      assert.equal(is_error, i < 5 ? undefined : true, at)
      if (i >= 5) assert.equal(content, refused, at)
    }
    assert.equal(told[4].content, 'a ran again\n')
  }
  const [parent] = readFolder(folder)
  const found = 'README.md a.mjs look.mjs notes src test.mjs\\nok\\n'
  assert(JSON.stringify(parent.messages).includes(found), 'no file named no')
})

test('live, nobody is asked where there is no terminal', async (t) => {
  const script = [calls(bash('echo > no')), text('So.')]
  const run = await runLive(t, script, { step: STEP, args: ['Go.'] })
  assert.match(resultsIn(run.requests[1])[0].content, /^Refused, not run\. Of bash only/)
  assert.doesNotMatch(run.stdout, /Allow it/)
  assert.equal(run.code, 0)
})

describe('on a terminal', { concurrency: 4, skip: noTerminal() }, () => {
  const questions = (screen: string) => screen.split('Allow it? [y/N]').length - 1

  test('live, it asks about all that would run; only yes is yes', async (t) => {
    const root = makeRoot(t)
    const workdir = join(root, '.workspace', STEP)
    const asks: [lane: string, call: Json, answer: string][] = [
      ['parent', bash('echo > one.txt'), 'y'],
      ['parent', bash('echo > two.txt'), 'n'],
      ['parent', bash('echo > three.txt'), ''],
      ['parent', bash('echo > four.txt'), 'YES'],
      ['parent', bash('echo > five.txt'), 'yep'],
      // Neither a field that the tool does not have nor a second line is kept back.
      ['parent', bash('echo > no.txt', { path: 'README.md' }), 'N'],
      ['parent', bash('echo hello\necho > no.txt'), ''],
      ['sub-1', bash('echo > six.txt'), ' yes '],
      ['sub-1', bash('echo > seven.txt'), 'N'],
    ]
    const [own, its] = ['parent', 'sub-1'].map((lane) =>
      asks.filter(([name]) => name === lane).map(([, call]) => call),
    )
    const script = byPrompt({
      parent: [calls(write('a.mjs'), ...own, task('child')), text('All done.')],
      child: [calls(...its), text('Report.')],
    })
    const server = await serve(t, script)
    writeFileSync(join(root, '.env'), envFile(server.url))
    const terminal = onTerminal(t, STEP, root)
    await terminal.shows('06 > ')
    terminal.type('\x15parent\r') // Ctrl+U: the step's own prompt is offered
    for (const [lane, { name, input }, answer] of asks) {
      const [file] = /\w+\.txt/.exec(input.command) ?? assert.fail()
      await terminal.shows(`${lane}: ${name} ${JSON.stringify(input)} Allow it? [y/N] `)
      assert(!existsSync(join(workdir, file)), 'nothing runs before the answer')
      terminal.type(`${answer}\r`)
    }
    await terminal.shows('All done.')
    await terminal.shows('06 > ')
    terminal.type('q\r')
    assert.equal(await terminal.code, 0)
    assert.deepEqual(server.refused, [])
    const made = readdirSync(workdir).filter((name) => name.endsWith('.txt'))
    assert.deepEqual(made.sort(), ['four.txt', 'one.txt', 'six.txt'])
    const bodies = server.requests.map(({ body }) => body)
    const [parent, child] = ['parent', 'child'].map((prompt) =>
      resultsIn(about(bodies, prompt)[1]).map(({ content }) => content),
    )
    const no = `Refused, not run. Of bash only ${RULES.bash} may run.`
    assert.deepEqual(
      [...parent.slice(1, -1), ...child],
      asks.map(([, , answer]) => (/^\s*y(es)?\s*$/i.test(answer) ? '(no output)' : no)),
    )
  })

  test('children that work at once are asked for one after the other', async (t) => {
    const root = makeRoot(t)
    const server = await serve(
      t,
      byPrompt({
        parent: [calls(task('first'), task('second')), text('All done.')],
        first: [calls(bash('echo first')), text('First.')],
        second: [calls(bash('echo second')), text('Second.')],
      }),
    )
    writeFileSync(join(root, '.env'), envFile(server.url))
    const terminal = onTerminal(t, '10-parallel', root)
    await terminal.shows('10 > ')
    terminal.type('\x15parent\r')
    await terminal.shows('Allow it? [y/N] ')
    await sleep(500)
    assert.equal(questions(terminal.screen()), 1)
    terminal.type('y\r')
    await terminal.shows('Allow it? [y/N] ')
    terminal.type('n\r')
    await terminal.shows('All done.')
    const asked = terminal.screen().match(/sub-\d: bash {"command":"echo \w+"}/g)
    assert.deepEqual(asked?.sort(), [
      'sub-1: bash {"command":"echo first"}',
      'sub-2: bash {"command":"echo second"}',
    ])
    const bodies = server.requests.map(({ body }) => body)
    const results = ['first', 'second'].map(
      (prompt) => resultsIn(about(bodies, prompt)[1])[0],
    )
    assert.equal(results.filter(({ is_error }) => is_error).length, 1)
    assert.deepEqual(server.refused, [])
  })

  test('offline rules decide, here too', async (t) => {
    const root = makeRoot(t)
    const terminal = onTerminal(t, STEP, root)
    assert.equal(await terminal.code, 0, terminal.screen())
    assert.equal(questions(terminal.screen()), 0)
    const recorded = filesOf(join(root, 'logs', 'recorded', STEP))
    assert.deepEqual(filesOf(join(root, 'logs', STEP)), recorded)
    assert.match(recorded['parent.log'] + recorded['sub-1.log'], /Refused, not run\./)
  })
})
