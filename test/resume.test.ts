/** A lane's file is its session: read back, checked, repaired, continued. */
import assert from 'node:assert/strict'
import * as fs from 'node:fs'
import { tmpdir } from 'node:os'
import { basename, dirname, join } from 'node:path'
import { after, before, describe, test } from 'node:test'
import type { Lanes } from '../steps/support/run/lanes.ts'
import { recoverLane } from '../steps/support/run/resume.ts'
import {
  about,
  bash,
  byPrompt,
  type Context,
  calls,
  editStep,
  envFile,
  filesOf,
  type Json,
  logFolder,
  MODEL,
  makeRoot,
  posix,
  read,
  resultsIn,
  runStep,
  type Server,
  type StepOptions,
  serve,
  startServer,
  startStep,
  task,
  text,
  until,
} from './live.ts'

const STEP = '09-resume'
const CHANGED = '\n\n(Files may have changed: read again what you rely on.)'
const resume = (prompt: string) => task(prompt, { resume: 'sub-1' })

/** The results of a prompt's calls, as the parent reads them. */
const resultsOf = (requests: Json[], prompt: string) =>
  resultsIn(about(requests, prompt).at(-1) as Json)

const messagesIn = (lines: string): Json[] =>
  lines
    .trim()
    .split('\n')
    .map((line) => JSON.parse(line))
    .filter(({ role }) => role)
    .map(({ role, content }) => ({ role, content }))

/** One finished live run, which the tests below continue, each a copy of it. */
const workdir = fs.realpathSync(fs.mkdtempSync(join(tmpdir(), 'resume-test-')))
let finished: { folder: string; files: Record<string, string> }
after(() => fs.rmSync(workdir, { recursive: true, force: true }))

const WAIT = `import { existsSync, writeFileSync } from 'node:fs'
writeFileSync('waits', '')
const timer = setInterval(() => existsSync('go') && clearInterval(timer), 20)
setTimeout(() => process.exit(), 20_000).unref()`

before(async () => {
  fs.writeFileSync(join(workdir, 'README.md'), 'Read me: ünïcödé “all of it”.\n')
  fs.writeFileSync(join(workdir, 'wait.mjs'), WAIT)
  const server = await startServer(
    byPrompt({
      one: [calls(task('look', { agent: 'scout' })), calls(read()), text('So fär.')],
      look: [calls(read(), read()), text('First “report”.')],
    }),
  )
  const options = { root: makeRoot(), env: { WORKDIR: workdir } }
  const dotenv = envFile(server.url)
  const run = await runStep({ step: STEP, args: ['one'], dotenv, ...options })
  await server.close()
  assert.equal(run.code, 0, run.stderr)
  const folder = join(run.root, logFolder(run))
  finished = { folder: basename(folder), files: filesOf(folder) }
  assert.deepEqual(Object.keys(finished.files), ['parent.log', 'sub-1.log'])
})

/** A root in which that run, with these files, is the last one. */
function rootWith(t: Context, files = finished.files) {
  const root = makeRoot(t)
  const folder = join(root, 'logs', 'live', finished.folder)
  fs.mkdirSync(folder, { recursive: true })
  for (const [name, content] of Object.entries(files)) {
    fs.writeFileSync(join(folder, name), content)
  }
  return { root, folder }
}

const more = (server: Server, root: string, words: string): StepOptions => ({
  step: STEP,
  args: ['--continue', ...words.split(' ')],
  root,
  env: { WORKDIR: workdir },
  dotenv: envFile(server.url),
})

describe('--continue', { concurrency: 4 }, () => {
  test('the last run goes on, with its children, in the same files', async (t) => {
    const { root, folder } = rootWith(t)
    // An older run, and one that has said nothing, are not the last.
    const older = join(dirname(folder), `${STEP}-2001-01-01-000000`)
    fs.cpSync(folder, older, { recursive: true })
    fs.mkdirSync(join(dirname(folder), `${STEP}-2999-01-01-000000`))
    const script = byPrompt({
      'more of it': [
        calls(resume('And now?'), task('another'), task('third', { resume: 'sub-3' })),
        text('All seen.'),
      ],
      [`And now?${CHANGED}`]: [text('Second report.')],
      another: [calls(read()), text('Another report.')],
    })
    const server = await serve(t, script)
    const run = await runStep(more(server, root, 'more of it'))
    assert.deepEqual(server.refused, [])
    assert.equal(run.code, 0, run.stderr)
    assert.equal(join(root, logFolder(run)), folder)

    const requests = server.requests.map(({ body }) => body)
    const old = finished.files['parent.log'].replaceAll('<workdir>', () =>
      JSON.stringify(workdir).slice(1, -1),
    )
    const prompt = { role: 'user', content: 'more of it' }
    assert.deepEqual(requests[0].messages, [...messagesIn(old), prompt])
    const [child] = about(requests, `And now?${CHANGED}`)
    assert.deepEqual(child.messages.slice(0, -1), messagesIn(finished.files['sub-1.log']))
    const [one, two, none] = resultsOf(requests, 'more of it')
    assert.match(one.content, /^completed \(1 turn, 10 tokens in, 5 out\)/)
    assert.match(one.content, /Second report.*resume "sub-1"/s)
    assert.doesNotMatch(one.content, /First/)
    assert.match(two.content, /Another report.*resume "sub-2"/s)
    assert.equal(none.content, 'There is no sub-3 in this run, only sub-1, sub-2.')

    const files = filesOf(folder)
    assert.deepEqual(Object.keys(files), ['parent.log', 'sub-1.log', 'sub-2.log'])
    for (const [name, content] of Object.entries(finished.files)) {
      assert(files[name].startsWith(content), `${name} goes on`)
      assert.equal(files[name].match(/"lane":/g)?.length, 1)
    }
  })

  test('what the run had otherwise is named, and nothing is written', async (t) => {
    const server = await serve(t, [])
    const { root, folder } = rootWith(t)
    editStep(root, STEP, 'You are a coding agent', 'You are another agent')
    editStep(root, STEP, "resume: { type: 'string' }", "resume: { type: ['string'] }")
    const run = await runStep({
      ...more(server, root, 'more'),
      dotenv: envFile(server.url).replace(MODEL, 'other-model'),
      env: { WORKDIR: fs.mkdtempSync(join(workdir, 'elsewhere-')) },
    })
    const said = 'parent ran with another model, system, tools, workdir: it cannot go on.'
    assert.deepEqual([run.code, run.stderr], [1, `${said}\n`])
    assert.deepEqual(filesOf(folder), finished.files)
    assert.equal(server.requests.length, 0)
  })

  test('a profile that has changed refuses its child, and names what differs', async (t) => {
    const { root, folder } = rootWith(t)
    const profile = join(root, 'steps', 'agents', 'scout.md')
    const edited = fs
      .readFileSync(profile, 'utf8')
      .replace('bash, read_file', 'read_file\nmodel: other-model')
      .replace('in few words', 'at length')
    fs.writeFileSync(profile, edited)
    const server = await serve(t, [calls(resume('And now?')), text('So.')])
    const run = await runStep(more(server, root, 'more'))
    assert.equal(run.code, 0, run.stderr)
    const [{ content, is_error }] = resultsIn(server.requests[1].body)
    const said = 'sub-1 ran with another model, system, tools: it cannot go on.'
    assert.deepEqual([content, is_error], [said, true])
    assert.equal(filesOf(folder)['sub-1.log'], finished.files['sub-1.log'])
  })

  test('without a live run, or offline: a clear error', async (t) => {
    const root = makeRoot(t)
    const live = envFile('http://127.0.0.1:9')
    const offline =
      /^--continue goes on with a live run\. To ask a real model, copy \.env/
    const cases: [args: string[], dotenv: string, said: RegExp][] = [
      [[], live, /^There is no live run of 09-resume to continue/],
      [[], '', offline],
      [['--offline'], live, offline],
    ]
    for (const [args, dotenv, said] of cases) {
      const options = { step: STEP, args: ['--continue', ...args], root, dotenv }
      const run = await runStep(options)
      assert.match(run.stderr, said)
      assert.deepEqual([run.code, run.stderr.split('\n').length], [1, 2])
    }
  })

  test('of two that continue one run, one is refused, and nothing is mixed', async (t) => {
    const { root, folder } = rootWith(t)
    let release = () => {}
    const held = new Promise<void>((go) => {
      release = go
    })
    const server = await serve(t, async () => {
      await held
      return text('Mine.')
    })
    const runs = ['a', 'b'].map((words) => startStep(more(server, root, words)))
    const loser = await Promise.race(runs.map(({ result }) => result))
    assert.match(loser.stderr, /parent\.log is in use by .*\n$/)
    assert.equal(loser.code, 1)
    release()
    const ends = await Promise.all(runs.map(({ result }) => result))
    assert.deepEqual(ends.map(({ code }) => code).sort(), [0, 1])
    assert.equal(server.requests.length, 1)
    const files = filesOf(folder)
    assert.deepEqual(Object.keys(files), ['parent.log', 'sub-1.log'], 'no lock is left')
    const { length } = finished.files['parent.log']
    const added = messagesIn(files['parent.log'].slice(length))
    assert.deepEqual(added[1].content, [{ type: 'text', text: 'Mine.' }])
    assert.equal(added.length, 2)
  })
})

test('killed, in parent and child, and continued: both lanes go on', posix, async (t) => {
  const root = makeRoot(t)
  const own = fs.mkdtempSync(join(workdir, 'killed-'))
  for (const name of ['README.md', 'wait.mjs'])
    fs.copyFileSync(join(workdir, name), join(own, name))
  const script = byPrompt({
    one: [calls(read(), task('look'))],
    look: [calls(read()), calls(bash('node wait.mjs'))],
    on: [calls(resume('Well?')), text('Done.')],
    [`Well?${CHANGED}`]: [text('Here.')],
  })
  const server = await serve(t, script)
  const options = { ...more(server, root, 'on'), env: { WORKDIR: own } }
  const run = startStep({ ...options, args: ['one'] })
  await until(() => fs.existsSync(join(own, 'waits')))
  run.child.kill('SIGKILL')
  assert.equal((await run.result).signal, 'SIGKILL')
  fs.writeFileSync(join(own, 'go'), '')
  const [name] = fs.readdirSync(join(root, 'logs', 'live'))
  const folder = join(root, 'logs', 'live', name)
  const left = filesOf(folder)
  const next = await runStep(options)
  assert.equal(next.code, 0, next.stderr)
  assert.deepEqual(server.refused, [])
  const files = filesOf(folder)
  assert.deepEqual(Object.keys(files), ['parent.log', 'sub-1.log'], 'the lock is gone')
  for (const file of Object.keys(files)) assert(files[file].startsWith(left[file]), file)

  const unknown = 'Unknown: the run ended before this call was answered.'
  const requests = server.requests.slice(3).map(({ body }) => body)
  const answers = requests[0].messages[2].content
  assert.deepEqual(
    answers.map(({ tool_use_id: id, content }: Json) => `${id} ${content}`),
    [`tool_1 ${unknown}`, `tool_2 ${unknown}`],
  )
  const [child] = about(requests, `Well?${CHANGED}`)
  const [, , seen, , lost] = child.messages.map(({ content }: Json) => content[0])
  assert.match(seen.content, /Read me/, 'what was done stays')
  assert.deepEqual([lost.content, lost.is_error], [unknown, true])
  assert.match(resultsOf(requests, 'on')[0].content, /^completed \(1 turn.*Here\./s)
})

describe('a file that was cut, or is broken', () => {
  const at = (folder: string) => ({ lanes: { folder, all: [] } as unknown as Lanes })

  test('cut at any byte: nothing finished is lost', () => {
    const folder = fs.mkdtempSync(join(workdir, 'cut-'))
    const path = join(folder, 'sub-1.log')
    const bytes = Buffer.from(finished.files['sub-1.log'])
    for (let end = bytes.indexOf('\n') + 1; end <= bytes.length; end++) {
      fs.writeFileSync(path, bytes.subarray(0, end))
      const { messages } = recoverLane(at(folder), 'sub-1')
      const file = fs.readFileSync(path, 'utf8')
      const whole = bytes.lastIndexOf(10, end - 1) + 1
      assert.equal(Buffer.byteLength(file), whole, `cut at ${end}`)
      assert(bytes.toString().startsWith(file))
      assert.equal(messages.length, messagesIn(file).length)
    }
  })

  test('anything else is refused by name, and left as it is', () => {
    const whole = finished.files['sub-1.log']
    const lines = whole.split('\n')
    const without = (n: number) => lines.toSpliced(n, 1).join('\n')
    const half = whole.replace(lines[2], lines[2].slice(0, -5))
    const broken: [string, RegExp][] = [
      [half, /sub-1\.log, line 3 is not JSON\.$/],
      [without(0), /sub-1\.log, line 1 is no header/],
      ['', /sub-1\.log is empty\.$/],
      [lines[0].slice(0, 50), /sub-1\.log, line 1 is not JSON/],
      [whole.replace('"role":"user"', '"role":"usher"'), /line 2 is neither a message/],
      [without(2), /sub-1\.log cannot be continued: .*unexpected `tool_use_id`/],
      [without(1), /sub-1\.log cannot be continued: .*first message/],
      [without(3), /sub-1\.log cannot be continued: .*`tool_use` ids were found/],
    ]
    const folder = fs.mkdtempSync(join(workdir, 'broken-'))
    const path = join(folder, 'sub-1.log')
    for (const [content, said] of broken) {
      fs.writeFileSync(path, content)
      assert.throws(() => recoverLane(at(folder), 'sub-1'), said)
      assert.equal(fs.readFileSync(path, 'utf8'), content)
    }
  })
})
