/** Step 06: what runs unasked, what is refused, and how the reader is asked. */
import assert from 'node:assert/strict'
import { existsSync, readdirSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, test } from 'node:test'
import { setTimeout as sleep } from 'node:timers/promises'
import { about, byPrompt, envFile, laneOf, resultsIn, runLive, serve } from './live.ts'
import { calls, type Json, makeRoot, text } from './server.ts'
import { noTerminal, onTerminal } from './terminal.ts'

const STEP = '06-tool-gate'
const bash = (command: string, more: Json = {}) => ({
  name: 'bash',
  input: { command, ...more },
})
const task = (prompt: string) => ({ name: 'task', input: { prompt } })
const write = (path: string, content = '') => ({
  name: 'write_file',
  input: { path, content },
})
const edit = (path: string, old_text: string, new_text: string) => ({
  name: 'edit_file',
  input: { path, old_text, new_text },
})

describe('without a terminal', { concurrency: 4 }, () => {
  const allowed: [call: Json, says: RegExp][] = [
    [write('a.mjs', "console.log('a ran')"), /^Wrote/],
    [write('notes/deep-er/b.md', 'Note.'), /^Wrote/],
    [edit('a.mjs', "'a ran'", "'a ran again'"), /./],
    [{ name: 'read_file', input: { path: 'a.mjs' } }, /a ran again/],
    [bash('node a.mjs'), /^a ran again\n$/],
  ]
  // All of these would leave a file named no behind, if anything of them ran.
  const commands = [
    'node a.mjs; echo > no',
    'node a.mjs\necho > no',
    'node a.mjs\r\necho > no',
    'node a.mjs\u2028echo > no',
    'node a.mjs && echo > no',
    'node a.mjs || echo > no',
    'node a.mjs | tee no',
    'node a.mjs & echo > no',
    'node a.mjs > no',
    'node a.mjs $(echo > no)',
    'node a.mjs `echo > no`',
    'node $(echo > no)a.mjs',
    'echo > no; node a.mjs',
    'echo > no\nnode a.mjs',
    'A=$(echo > no) node a.mjs',
    `node -e "fs.writeFileSync('no', '')"`,
    'node a.mjs\n',
    ' node a.mjs',
    'Node a.mjs',
    'node ../a.mjs',
    'node a.js',
    'echo > no',
    '',
  ]
  const paths = ['no', '../no.mjs', '.agents/no.md', 'no.mjs\n', 'no.mjs.sh', 'no.js', '']
  const refused = [
    ...commands.map((command) => bash(command)),
    ...paths.map((path) => write(path)),
    ...paths.map((path) => edit(path, 'a', 'b')),
  ]
  const all = [...allowed.map(([call]) => call), ...refused]
  const RULES: Record<string, string> = {
    bash: '/^node \\w[\\w/-]*\\.mjs$/',
    write_file: '/^[\\w/-]+\\.(mjs|md)$/',
    edit_file: '/^[\\w/-]+\\.(mjs|md)$/',
  }

  test('rules decide, in both lanes, and the reason stands in the history', async (t) => {
    const run = await runLive(
      t,
      byPrompt({
        parent: [calls(...all), calls(task('child')), text('So.')],
        child: [calls(...all), text('Report.')],
      }),
      { step: STEP, args: ['parent'] },
    )
    const workdir = join(run.root, '.workspace', STEP)
    for (const prompt of ['parent', 'child']) {
      const results = resultsIn(about(run.requests, prompt)[1])
      for (const [i, [call, says]] of allowed.entries()) {
        assert.match(results[i].content, says, `${prompt}: ${JSON.stringify(call)}`)
        assert.equal(results[i].is_error, undefined)
      }
      for (const [i, { content, is_error }] of results.slice(allowed.length).entries()) {
        const { name } = refused[i]
        const reason = `Refused, not run. Of ${name} only ${RULES[name]} may run.`
        assert.equal(content, reason, `${prompt}: ${JSON.stringify(refused[i])}`)
        assert.equal(is_error, true)
      }
    }
    const made = readdirSync(workdir, { recursive: true }).map(String)
    assert.deepEqual(
      made.filter((name) => /\bno\b/.test(name)),
      [],
    )
    assert(!existsSync(join(workdir, '..', 'no.mjs')))
    for (const lane of ['parent', 'sub-1']) {
      const logged = JSON.stringify(laneOf(run, lane).messages)
      const count = logged.split('Refused, not run. Of bash only').length - 1
      assert.equal(count, commands.length)
    }
    assert.doesNotMatch(run.stdout, /Allow it/)
    assert.equal(run.code, 0)
  })

  test('an unknown tool or a wrong input does not come so far', async (t) => {
    const run = await runLive(
      t,
      [
        calls(
          { name: 'fly' },
          { name: 'bash', input: { command: 5 } },
          task(' \n'),
          write('a.mjs'),
        ),
        text('So.'),
      ],
      { step: STEP, args: ['Go.'] },
    )
    const [fly, wrong, blank] = resultsIn(run.requests[1]).map(({ content }) => content)
    assert.match(fly, /^No tool fly, only /)
    assert.equal(wrong, 'bash.command must be a string, not 5')
    assert.match(blank, /^task\.prompt must be text, not blank/)
  })
})

describe('on a terminal', { concurrency: 4, skip: noTerminal() }, () => {
  const lastQuestion = (text: string) => text.slice(text.lastIndexOf('parent: '))
  const questions = (screen: string) => screen.split('Allow it? [y/N]').length - 1

  test('live, it asks, one question at a time; only yes is yes', async (t) => {
    const root = makeRoot(t)
    const workdir = join(root, '.workspace', STEP)
    const touch = (name: string) => bash(`echo ${name} > ${name}.txt`)
    const server = await serve(
      t,
      byPrompt({
        parent: [
          calls(write('a.mjs', ''), bash('node a.mjs'), touch('one'), touch('two')),
          calls(touch('three'), touch('four'), touch('five'), task('child')),
          text('All done.'),
        ],
        child: [calls(touch('six'), touch('seven')), text('Report.')],
      }),
    )
    writeFileSync(join(root, '.env'), envFile(server.url))
    const terminal = onTerminal(t, STEP, root)
    await terminal.shows('06 > ')
    terminal.type('\x15parent\r') // Ctrl+U: the step's own prompt is offered
    const asks = [
      ['parent', 'one', 'y'],
      ['parent', 'two', 'n'],
      ['parent', 'three', ''],
      ['parent', 'four', 'YES'],
      ['parent', 'five', 'yep'],
      ['sub-1', 'six', ' yes '],
      ['sub-1', 'seven', 'N'],
    ]
    for (const [i, [lane, name, answer]] of asks.entries()) {
      const command = `bash {"command":"echo ${name} > ${name}.txt"}`
      await terminal.shows(`${lane}: ${command} Allow it? [y/N] `)
      await sleep(100)
      assert.equal(questions(terminal.screen()), i + 1, 'no other question yet')
      assert(!existsSync(join(workdir, `${name}.txt`)), 'nothing runs before the answer')
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
    const no = `Refused, not run. Of bash only ${'/^node \\w[\\w/-]*\\.mjs$/'} may run.`
    const said = (prompt: string, n: number) =>
      resultsIn(about(bodies, prompt)[n]).map(({ content }) => content)
    assert.deepEqual(said('parent', 1).slice(-2), ['(no output)', no])
    assert.deepEqual(said('parent', 2).slice(0, 3), [no, '(no output)', no])
    assert.deepEqual(said('child', 1), ['(no output)', no])
  })

  test('the question shows all that would run', async (t) => {
    const root = makeRoot(t)
    const server = await serve(t, [
      calls(
        bash('echo lure > no.txt', { path: 'README.md' }),
        bash('echo hello\necho > no.txt'),
      ),
      text('All done.'),
    ])
    writeFileSync(join(root, '.env'), envFile(server.url))
    const terminal = onTerminal(t, STEP, root)
    await terminal.shows('06 > ')
    terminal.type('\x15parent\r')
    for (const _ of [1, 2]) {
      await terminal.shows('Allow it? [y/N] ')
      terminal.type('n\r')
    }
    await terminal.shows('All done.')
    const [one, two] = terminal.screen().split('Allow it?').map(lastQuestion)

    await t.test('not a field that the tool does not have in its place', () => {
      assert.match(one, /echo lure > no\.txt/)
    })
    await t.test('two lines do not look like one command', () => {
      assert.match(two, /echo > no\.txt/)
      assert.doesNotMatch(two, /echo hello echo >/)
    })
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
    const [one, two] =
      terminal.screen().match(/sub-\d: bash {"command":"echo \w+"} Allow/g) ?? []
    assert.deepEqual(
      [one, two].sort(),
      [
        'sub-1: bash {"command":"echo first"} Allow',
        'sub-2: bash {"command":"echo second"} Allow',
      ].sort(),
    )
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
    const read = (folder: string) =>
      readdirSync(join(root, folder)).map((name) =>
        readFileSync(join(root, folder, name), 'utf8'),
      )
    const recorded = read(`logs/recorded/${STEP}`)
    assert.deepEqual(read(`logs/${STEP}`), recorded)
    assert.match(recorded.join(''), /Refused, not run\. Of bash only/)
  })
})
