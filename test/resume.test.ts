/** A lane's file is its session: read back, checked, repaired, continued. */
import assert from 'node:assert/strict'
import * as fs from 'node:fs'
import { tmpdir } from 'node:os'
import { basename, dirname, join } from 'node:path'
import { after, before, describe, test } from 'node:test'
import { setTimeout as sleep } from 'node:timers/promises'
import { requestError } from '../steps/support/base/protocol.ts'
import { readBack } from '../steps/support/run/resume.ts'
import {
  about,
  assertReplays,
  byPrompt,
  envFile,
  laneOf,
  logFolder,
  MODEL,
  promptOf,
  resultsIn,
  runLive,
  serve,
} from './live.ts'
import {
  type Answer,
  calls,
  editStep,
  fail,
  type Handler,
  type Json,
  makeRoot,
  runStep,
  type Server,
  type StepOptions,
  stall,
  startServer,
  startStep,
  text,
} from './server.ts'

const STEP = '09-resume'
const CHANGED = '\n\n(Files may have changed: read again what you rely on.)'
const posix = { skip: process.platform === 'win32' && 'needs signals' }

const task = (prompt: string, more: Json = {}) => ({
  name: 'task',
  input: { prompt, ...more },
})
const resume = (prompt: string, more: Json = {}) =>
  task(prompt, { resume: 'sub-1', ...more })
const read = (path = 'README.md') => ({ name: 'read_file', input: { path } })
const refused = fail(400, 'invalid_request_error', 'Not today.')

/** The one result of the last call of a prompt, as the parent reads it. */
const resultOf = (requests: Json[], prompt: string, n = 0) =>
  resultsIn(about(requests, prompt).at(-1) as Json)[n]

const filesOf = (folder: string): Record<string, string> => {
  const names = fs.readdirSync(folder).sort()
  return Object.fromEntries(
    names.map((name) => [name, fs.readFileSync(join(folder, name), 'utf8')]),
  )
}

const messagesIn = (lines: string): Json[] =>
  lines
    .trim()
    .split('\n')
    .map((line) => JSON.parse(line))
    .filter(({ role }) => role)
    .map(({ role, content }) => ({ role, content }))

async function until(condition: () => boolean): Promise<void> {
  for (const start = Date.now(); !condition(); await sleep(10)) {
    if (Date.now() - start > 15_000) throw new Error(`Waited in vain for ${condition}`)
  }
}

describe('a child of this run', { concurrency: 4 }, () => {
  test('its history comes back as logged, and its file goes on', async (t) => {
    const root = makeRoot(t)
    let then = ''
    const script = byPrompt({
      one: [calls(task('look', { agent: 'scout' })), text('So far.')],
      look: [calls(read(), read('gone.md')), calls(read()), text('First report.')],
      two: [calls(resume('And the tests?')), text('Seen.')],
      [`And the tests?${CHANGED}`]: [calls(read('test.mjs')), text('Second report.')],
    })
    const run = await runLive(
      t,
      (body, n) => {
        if (promptOf(body) === 'two' && !then) {
          const [folder] = fs.readdirSync(join(root, 'logs', 'live'))
          then = fs.readFileSync(join(root, 'logs', 'live', folder, 'sub-1.log'), 'utf8')
        }
        return script(body, n)
      },
      { step: STEP, root, stdin: 'one\ntwo\n' },
    )
    assert.equal(run.stderr, '')
    assert.equal(run.code, 0)
    assert.match(resultOf(run.requests, 'one').content, /^completed \(3 turns/)
    assert.match(resultOf(run.requests, 'one').content, /First report\..*resume "sub-1"/s)

    const [first, second] = about(run.requests, `And the tests?${CHANGED}`)
    const old = messagesIn(then)
    assert.equal(old.length, 6)
    assert.deepEqual(first.messages.slice(0, 6), old)
    assert.deepEqual(
      old[1].content.map(({ id }: Json) => id),
      ['tool_1', 'tool_2'],
    )
    assert.deepEqual(first.messages.slice(6), [
      { role: 'user', content: `And the tests?${CHANGED}` },
    ])
    assert.equal(first.system, about(run.requests, 'look')[0].system)
    assert.deepEqual(first.tools, about(run.requests, 'look')[0].tools)
    assert.equal(second.messages.length, 9)

    const result = resultOf(run.requests, 'two')
    assert.match(result.content, /^completed \(2 turns, 20 tokens in, 10 out\)/)
    assert.match(result.content, /Its report:\nSecond report\./)
    assert.doesNotMatch(result.content, /First report/)
    assert.equal(result.is_error, undefined)

    const now = filesOf(join(root, logFolder(run)))
    assert.deepEqual(Object.keys(now), ['parent.log', 'sub-1.log'])
    assert(now['sub-1.log'].startsWith(then), 'what was there stays, line 1 too')
    const { header, lines, messages } = laneOf(run, 'sub-1')
    assert.equal(header.agent, 'scout')
    assert.equal(lines.filter((line) => line.lane).length, 1)
    assert.equal(messages.length, 10)
    assert.equal(messages[7].content[0].id, 'tool_4', 'ids are numbered on')
    assert.match(run.stdout, /\nsub-1: 10 messages, .*, tokens 50 in, 25 out\n/)
    await assertReplays(STEP, run)
  })

  test('however it ended, it goes on, and is not given its old words', async (t) => {
    const root = makeRoot(t)
    editStep(root, STEP, 'const MAX_TURNS = 30', 'const MAX_TURNS = 2')
    const go = (lane: string, prompt: string) =>
      calls(task(prompt, { resume: lane }), task('none of this run', { resume: lane }))
    const run = await runLive(
      t,
      byPrompt({
        capped: [calls(task('many')), text('So.')],
        many: [calls(read()), calls(read()), text('Old words.')],
        'after the cap': [go('sub-1', 'on'), text('So.')],
        [`on${CHANGED}`]: [calls(read()), text('New words.')],
        crashed: [calls(task('breaks')), text('So.')],
        breaks: [calls(read(), { text: 'Old words.' }), refused],
        'after the crash': [go('sub-2', 'further'), text('So.')],
        [`further${CHANGED}`]: [text('New words.')],
        late: [calls(task('slow', { timeoutMs: 1000 })), text('So.')],
        slow: [calls(read(), { text: 'Old words.' }), stall()],
        'after the end of its time': [go('sub-3', 'faster'), text('So.')],
        [`faster${CHANGED}`]: [text('New words.')],
        // Resumed once more, each of the three crashes at once.
        [`none of this run${CHANGED}`]: [refused, refused, refused],
      }),
      {
        step: STEP,
        root,
        stdin: [
          'capped\nafter the cap\ncrashed\nafter the crash\nlate\n',
          'after the end of its time\n',
        ].join(''),
      },
    )
    assert.equal(run.code, 0)
    for (const prompt of ['capped', 'crashed', 'late']) {
      assert.match(resultOf(run.requests, prompt).content, /Old words\./)
      assert.equal(resultOf(run.requests, prompt).is_error, true)
    }
    for (const prompt of ['the cap', 'the crash', 'the end of its time']) {
      const result = resultOf(run.requests, `after ${prompt}`)
      assert.match(result.content, /^completed \([12] turns?, .*New words\./s)
      assert.doesNotMatch(result.content, /Old words/)
      const { content, is_error } = resultOf(run.requests, `after ${prompt}`, 1)
      assert.match(content, /^crashed: 400 .*\(0 turns\).*\n\nNo other words\./s)
      assert.equal(is_error, true)
    }
    assert.match(resultOf(run.requests, 'late').content, /^timed_out after 1000 ms/)
    assert.deepEqual(Object.keys(filesOf(join(run.root, logFolder(run)))), [
      'parent.log',
      ...['sub-1.log', 'sub-2.log', 'sub-3.log'],
    ])
  })

  test('what cannot be resumed is refused, and nothing is started', async (t) => {
    const names = [
      'sub-2',
      'parent',
      '../x',
      'sub-1.log',
      '../09-resume/sub-1',
      'x/../sub-1',
    ]
    const run = await runLive(
      t,
      byPrompt({
        none: [calls(resume('Go on.')), text('So.')],
        one: [calls(task('look')), text('So.')],
        look: [text('First report.')],
        two: [
          calls(
            resume('Go on.', { agent: 'scout' }),
            ...names.map((name) => task('Go on.', { resume: name })),
          ),
          text('So.'),
        ],
        three: [calls(task('again', { resume: '', agent: '' })), text('So.')],
        again: [text('A new child.')],
      }),
      { step: STEP, stdin: 'none\none\ntwo\nthree\n' },
    )
    const none = 'There is no sub-1 in this run yet, nor another.'
    assert.equal(resultOf(run.requests, 'none').content, none)
    const [both, ...others] = resultsIn(about(run.requests, 'two')[1])
    assert.match(both.content, /A resumed child keeps its agent: leave agent out\./)
    assert.equal(others.length, names.length)
    for (const [i, { content, is_error }] of others.entries()) {
      assert.equal(content, `There is no ${names[i]} in this run, only sub-1.`)
      assert.equal(is_error, true)
    }
    assert.match(resultOf(run.requests, 'three').content, /A new child.*resume "sub-2"/s)
    assert.equal(run.requests.length, 10)
    assert.deepEqual(Object.keys(filesOf(join(run.root, logFolder(run)))), [
      'parent.log',
      ...['sub-1.log', 'sub-2.log'],
    ])
  })
})

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
  const run = await runStep({
    step: STEP,
    args: ['one'],
    root: makeRoot(),
    env: { WORKDIR: workdir },
    dotenv: envFile(server.url),
  })
  await server.close()
  assert.equal(run.code, 0, run.stderr)
  const folder = join(run.root, logFolder(run))
  finished = { folder: basename(folder), files: filesOf(folder) }
  assert.deepEqual(Object.keys(finished.files), ['parent.log', 'sub-1.log'])
})

/** A root in which that run, with these files, is the last one. */
function rootWith(t: { after: (done: () => void) => void }, files = finished.files) {
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
    fs.cpSync(folder, join(dirname(folder), `${STEP}-2001-01-01-000000`), {
      recursive: true,
    })
    fs.mkdirSync(join(dirname(folder), `${STEP}-2999-01-01-000000`))
    const server = await serve(
      t,
      byPrompt({
        'more of it': [
          calls(resume('And now?'), task('another'), task('third', { resume: 'sub-3' })),
          text('All seen.'),
        ],
        [`And now?${CHANGED}`]: [text('Second report.')],
        another: [calls(read()), text('Another report.')],
      }),
    )
    const run = await runStep(more(server, root, 'more of it'))
    assert.deepEqual(server.refused, [])
    assert.equal(run.code, 0, run.stderr)
    assert.equal(join(root, logFolder(run)), folder)
    assert.equal(fs.readdirSync(dirname(folder)).length, 3)

    const requests = server.requests.map(({ body }) => body)
    const old = messagesIn(finished.files['parent.log'])
    assert.equal(old.length, 6)
    const unfolded = JSON.parse(
      JSON.stringify(old).replaceAll('<workdir>', workdir.replaceAll('\\', '\\\\')),
    )
    assert.deepEqual(requests[0].messages, [
      ...unfolded,
      { role: 'user', content: 'more of it' },
    ])
    const [child] = about(requests, `And now?${CHANGED}`)
    assert.deepEqual(child.messages.slice(0, -1), messagesIn(finished.files['sub-1.log']))
    const [one, two, none] = resultsIn(about(requests, 'more of it')[1])
    assert.match(one.content, /^completed \(1 turn.*Second report.*resume "sub-1"/s)
    assert.match(two.content, /Another report.*resume "sub-2"/s)
    assert.equal(none.content, 'There is no sub-3 in this run, only sub-1, sub-2.')

    const files = filesOf(folder)
    assert.deepEqual(Object.keys(files), ['parent.log', 'sub-1.log', 'sub-2.log'])
    for (const name of ['parent.log', 'sub-1.log']) {
      assert(files[name].startsWith(finished.files[name]), `${name} goes on`)
      assert.equal(files[name].match(/"lane":/g)?.length, 1)
      assert(
        requestError({ ...ANY, messages: closed(messagesIn(files[name])) }) === undefined,
      )
    }
    assert.match(laneOf(run).messages.at(-1)?.content[0].text, /All seen\./)
  })

  test('what the run had otherwise is named, and nothing is written', async (t) => {
    const server = await serve(t, [])
    const elsewhere = fs.mkdtempSync(join(workdir, 'elsewhere-'))
    const dotenv = envFile(server.url).replace(MODEL, 'other-model')
    const others: [string, Partial<StepOptions>, [from: string, to: string][]][] = [
      ['model, workdir', { dotenv, env: { WORKDIR: elsewhere } }, []],
      ['system', {}, [['You are a coding agent', 'You are another agent']]],
      ['tools', {}, [['Read a text file, or', 'Read a file, or']]],
    ]
    const ends = others.map(async ([named, options, edits]) => {
      const { root, folder } = rootWith(t)
      for (const [from, to] of edits) editStep(root, STEP, from, to)
      const run = await runStep({ ...more(server, root, 'more'), ...options })
      assert.equal(run.stderr, `parent ran with another ${named}: it cannot go on.\n`)
      assert.equal(run.code, 1)
      assert.deepEqual(filesOf(folder), finished.files)
    })
    await Promise.all(ends)
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
    const named = 'model, system, tools'
    assert.equal(content, `sub-1 ran with another ${named}: it cannot go on.`)
    assert.equal(is_error, true)
    assert.equal(filesOf(folder)['sub-1.log'], finished.files['sub-1.log'])
  })

  test('without a live run, offline, or before step 09: a clear error', async (t) => {
    const server = await serve(t, [])
    const cases: [Partial<StepOptions>, RegExp][] = [
      [{ dotenv: envFile(server.url) }, /^There is no live run of 09-resume to continue/],
      [{}, /^--continue goes on with a live run\. To ask a real model, copy \.env/],
      [
        { args: ['--continue', '--offline'], dotenv: envFile(server.url) },
        /^--continue goes on with a live run\./,
      ],
      [
        { step: '04-subagent', dotenv: envFile(server.url) },
        /^--continue comes with step 09: this step starts anew each time\./,
      ],
    ]
    const ends = cases.map(async ([options, said]) => {
      const root = makeRoot(t)
      const run = await runStep({ step: STEP, args: ['--continue'], root, ...options })
      assert.match(run.stderr, said)
      assert.equal(run.stderr.split('\n').length, 2)
      assert.equal(run.code, 1)
      assert.equal(fs.existsSync(join(root, 'logs', 'live', '04-subagent')), false)
    })
    await Promise.all(ends)
    assert.equal(server.requests.length, 0)
  })
})

describe('one writer', { concurrency: 4 }, () => {
  test('of two that continue one run, one is refused, and nothing is mixed', async (t) => {
    const { root, folder } = rootWith(t)
    let release = () => {}
    const held = new Promise<void>((done) => {
      release = done
    })
    const server = await serve(t, async () => {
      await held
      return text('Mine.')
    })
    const runs = ['a', 'b'].map((words) => startStep(more(server, root, words)))
    const [loser] = await Promise.race(
      runs.map(async ({ result }) => [await result] as const),
    )
    const winner = runs.find(({ child }) => child.exitCode === null)
    assert(winner, 'one of them is at work')
    const { pid } = winner.child
    const name = `${finished.folder}.parent\\.log`
    const line = `^${name} is in use by (process ${pid}|another process): wait until .*\n$`
    assert.match(loser.stderr, new RegExp(line))
    assert.equal(loser.code, 1)
    release()
    const { code, stderr } = await winner.result
    assert.equal(code, 0, stderr)
    assert.equal(server.requests.length, 1)
    const files = filesOf(folder)
    assert.deepEqual(Object.keys(files), ['parent.log', 'sub-1.log'], 'no lock is left')
    const added = messagesIn(
      files['parent.log'].slice(finished.files['parent.log'].length),
    )
    assert.equal(added.length, 2)
    assert.equal(added[1].content[0].text, 'Mine.')
  })
})

describe('killed', { concurrency: 4, ...posix }, () => {
  /** Kills a run when `moment` says so, and continues it; both against one server. */
  async function killed(
    t: { after: (done: () => void) => void },
    scripts: Record<string, Answer[]>,
    moment: (prompt: string, body: Json) => boolean,
  ) {
    const root = makeRoot(t)
    const own = fs.mkdtempSync(join(workdir, 'killed-'))
    for (const name of ['README.md', 'wait.mjs'])
      fs.copyFileSync(join(workdir, name), join(own, name))
    const script = byPrompt(scripts)
    let run: ReturnType<typeof startStep> | undefined
    const handler: Handler = (body, n) => {
      if (!run?.child.killed && moment(promptOf(body), body)) run?.child.kill('SIGKILL')
      return script(body, n)
    }
    const server = await serve(t, handler)
    const options = { ...more(server, root, 'on'), env: { WORKDIR: own } }
    run = startStep({ ...options, args: ['one'] })
    if (scripts.tool) {
      await until(() => fs.existsSync(join(own, 'waits')))
      run.child.kill('SIGKILL')
    }
    const { signal } = await run.result
    assert.equal(signal, 'SIGKILL')
    fs.writeFileSync(join(own, 'go'), '')
    const [folder] = fs.readdirSync(join(root, 'logs', 'live'))
    const left = filesOf(join(root, 'logs', 'live', folder))
    assert.equal(Object.keys(left).filter((name) => /lock\.1$/.test(name)).length, 1)
    const before = server.requests.length
    const next = await runStep(options)
    assert.equal(next.code, 0, next.stderr)
    assert.deepEqual(server.refused, [])
    const files = filesOf(join(root, 'logs', 'live', folder))
    for (const [name, content] of Object.entries(left)) {
      if (!name.includes('lock')) assert(files[name].startsWith(content), name)
    }
    assert.equal(Object.keys(files).filter((name) => name.includes('lock')).length, 0)
    return { left, next, requests: server.requests.slice(before).map(({ body }) => body) }
  }

  test('while the model is asked', async (t) => {
    const { requests } = await killed(
      t,
      { one: [stall()], on: [text('Done.')] },
      (prompt) => prompt === 'one',
    )
    assert.deepEqual(requests[0].messages, [
      { role: 'user', content: 'one' },
      { role: 'user', content: 'on' },
    ])
  })

  test("while a child's model is asked: both lanes go on", async (t) => {
    const { requests } = await killed(
      t,
      {
        one: [calls(read(), task('look'))],
        look: [calls(read()), stall()],
        on: [calls(resume('Well?')), text('Done.')],
        [`Well?${CHANGED}`]: [text('Here.')],
      },
      (prompt, { messages }) => prompt === 'look' && messages.length === 3,
    )
    const unknown = /^Unknown: the run ended before this call was answered\.$/
    const results = requests[0].messages[2].content
    assert.deepEqual(
      results.map(({ tool_use_id }: Json) => tool_use_id),
      ['tool_1', 'tool_2'],
    )
    for (const { content, is_error } of results) {
      assert.match(content, unknown)
      assert.equal(is_error, true)
    }
    const [child] = about(requests, `Well?${CHANGED}`)
    assert.equal(child.messages.length, 4)
    assert.match(child.messages[2].content[0].content, /Read me/, 'what was done stays')
    assert.match(resultOf(requests, 'on').content, /Here\./)
  })

  test("while a child's tool runs: its call is answered too", async (t) => {
    const { requests, left } = await killed(
      t,
      {
        one: [calls(task('tool'))],
        tool: [calls({ name: 'bash', input: { command: 'node wait.mjs' } })],
        on: [calls(resume('Well?')), text('Done.')],
        [`Well?${CHANGED}`]: [text('Here.')],
      },
      () => false,
    )
    assert.equal(messagesIn(left['sub-1.log']).length, 2)
    const [child] = about(requests, `Well?${CHANGED}`)
    assert.match(child.messages[2].content[0].content, /^Unknown: the run ended before/)
    assert.equal(child.messages[2].content[0].is_error, true)
    assert.match(resultOf(requests, 'on').content, /^completed \(1 turn.*Here\./s)
  })
})

describe('cut anywhere', { concurrency: 4 }, () => {
  test('at every byte: nothing finished is lost, and the API accepts it', () => {
    const folder = fs.mkdtempSync(join(workdir, 'cut-'))
    for (const name of ['parent', 'sub-1']) {
      const path = join(folder, `${name}.log`)
      const bytes = Buffer.from(finished.files[`${name}.log`])
      const first = bytes.indexOf('\n') + 1
      for (let end = first; end <= bytes.length; end++) {
        fs.writeFileSync(path, bytes.subarray(0, end))
        const { messages, header } = readBack(folder, name, workdir)
        const file = fs.readFileSync(path, 'utf8')
        const lines = bytes.toString('latin1', 0, end).split('\n').length - 1
        const isWhole =
          end + 1 === bytes.indexOf('\n', end - 1) + 1 && bytes[end - 1] !== 10
        assert.equal(file.split('\n').length - 1, isWhole ? lines + 1 : lines, `${end}`)
        assert(bytes.toString().startsWith(file) && file.endsWith('\n'))
        assert.deepEqual(fs.readFileSync(path, 'utf8'), file)
        assert.equal(header.lane, name)
        assert.equal(messages.length, messagesIn(file).length)
        const refusal = requestError({ ...ANY, messages: closed(messages) })
        assert.equal(refusal, undefined, `cut at ${end}`)
      }
    }
  })

  test('a few of them, continued by the step itself', async (t) => {
    const parent = finished.files['parent.log']
    const child = finished.files['sub-1.log']
    const linesOf = (text: string, n: number) =>
      `${text.split('\n').slice(0, n).join('\n')}\n`
    const cuts: [parent: string, child: string, unknown: number][] = [
      [parent.slice(0, -9), child.slice(0, -1), 0],
      [`${linesOf(parent, 3)}{"level":"in`, `${linesOf(child, 3)}{"lev`, 3],
      [linesOf(parent, 1), linesOf(child, 1), 0],
    ]
    const ends = cuts.map(async ([parentCut, childCut, unknown]) => {
      const files = { 'parent.log': parentCut, 'sub-1.log': childCut }
      const { root, folder } = rootWith(t, files)
      const script = byPrompt({
        on: [calls(resume('Well?')), text('Done.')],
        [`Well?${CHANGED}`]: [text('Here.')],
      })
      const server = await serve(t, script)
      const run = await runStep(more(server, root, 'on'))
      assert.deepEqual(server.refused, [])
      assert.equal(run.code, 0, run.stderr)
      const requests = server.requests.map(({ body }) => body)
      const all = JSON.stringify([
        requests.at(-1)?.messages.slice(0, -3),
        about(requests, `Well?${CHANGED}`)[0].messages,
      ])
      assert.equal(all.split('Unknown: the run ended').length - 1, unknown)
      for (const name of ['parent', 'sub-1']) {
        const now = laneOf({ ...run, root }, name)
        assert.equal(now.lines.filter((line) => line.lane).length, 1)
        const whole = files[`${name}.log` as keyof typeof files].split('\n')
        const kept = whole.filter((line) => {
          try {
            return JSON.parse(line)
          } catch {
            return false
          }
        })
        assert(filesOf(folder)[`${name}.log`].startsWith(`${kept.join('\n')}\n`))
      }
      assert.match(run.stdout, /^09-resume, live: /, 'the first line says what this is')
    })
    await Promise.all(ends)
  })

  test('what is broken in another way is refused by name, and left as it is', async (t) => {
    const folder = fs.mkdtempSync(join(workdir, 'broken-'))
    const whole = finished.files['sub-1.log']
    const lines = whole.split('\n')
    const without = (n: number) => lines.filter((_, i) => i !== n).join('\n')
    const broken: [string, RegExp][] = [
      [
        whole.replace(lines[2], lines[2].slice(0, -5)),
        /sub-1\.log, line 3 is not JSON: /,
      ],
      [without(0), /sub-1\.log, line 1 is no header/],
      ['', /^Error: sub-1\.log is empty\.$/],
      [lines[0].slice(0, 50), /sub-1\.log, line 1 is not JSON/],
      ['Not a log.\nAt all.\n', /sub-1\.log, line 1 is not JSON/],
      [whole.replace('"role":"user"', '"role":"usher"'), /line 2 is neither a message/],
      [without(2), /sub-1\.log cannot be continued: .*unexpected `tool_use_id`/],
      [without(1), /sub-1\.log cannot be continued: .*first message/],
      [without(3), /sub-1\.log cannot be continued: .*`tool_use` ids were found/],
    ]
    const path = join(folder, 'sub-1.log')
    for (const [content, said] of broken) {
      fs.writeFileSync(path, content)
      assert.throws(() => readBack(folder, 'sub-1', workdir), said)
      assert.equal(fs.readFileSync(path, 'utf8'), content)
    }

    const parent = finished.files['parent.log'].split('\n')
    parent.splice(2, 1)
    const files = { ...finished.files, 'parent.log': parent.join('\n') }
    const { root, folder: logs } = rootWith(t, files)
    const server = await serve(t, [])
    const run = await runStep(more(server, root, 'on'))
    const said =
      /^parent\.log cannot be continued: [^\n]*unexpected `tool_use_id`[^\n]*\n$/
    assert.match(run.stderr, said)
    assert.equal(run.code, 1)
    assert.equal(server.requests.length, 0)
    assert.deepEqual(filesOf(logs), files)
  })

  test('a path with a dollar comes back as it is', () => {
    const folder = fs.mkdtempSync(join(workdir, 'dollar-'))
    const prompt = { role: 'user', content: 'Look at <workdir>/x.' }
    const [header] = finished.files['sub-1.log'].split('\n')
    fs.writeFileSync(join(folder, 'sub-1.log'), `${header}\n${JSON.stringify(prompt)}\n`)
    const { messages } = readBack(folder, 'sub-1', '/home/a$$b$&c')
    assert.deepEqual(messages, [{ role: 'user', content: 'Look at /home/a$$b$&c/x.' }])
  })
})

const ANY = {
  model: 'any',
  max_tokens: 1,
  tools: [{ name: 'any', input_schema: { type: 'object' } }],
}

/** A history as a step would send it next: each open call answered, and a prompt. */
function closed(messages: Json[]): Json[] {
  const last = messages.at(-1)
  const blocks: Json[] = last?.role === 'assistant' ? last.content : []
  const results = blocks
    .filter(({ type }) => type === 'tool_use')
    .map(({ id }) => ({ type: 'tool_result', tool_use_id: id, content: 'Unknown.' }))
  const answers = results.length > 0 ? [{ role: 'user', content: results }] : []
  return [...messages, ...answers, { role: 'user', content: 'Go on.' }]
}
