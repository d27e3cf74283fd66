/** What a live run leaves behind: whole logs without secrets, and no process. */
import assert from 'node:assert/strict'
import { execFile } from 'node:child_process'
import * as fs from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { describe, test } from 'node:test'
import { pathToFileURL } from 'node:url'
import { promisify } from 'node:util'
import type { MessageParam } from '@anthropic-ai/sdk/resources/messages'
import {
  readFolder,
  readLane as readLaneFile,
  requestSizes,
  sizeOf,
} from '../steps/support/base/lane-file.ts'
import { Lanes } from '../steps/support/run/lanes.ts'
import { recoverLane, reopenLane } from '../steps/support/run/resume.ts'
import { describeTools } from '../steps/support/tools/bash.ts'
import {
  type Answer,
  assertReplays,
  byPrompt,
  type Context,
  calls,
  compile,
  envFile,
  fail,
  KEY,
  laneOf,
  logFolder,
  makeRoot,
  posix,
  runLive,
  type Server,
  serve,
  startStep,
  text,
} from './live.ts'

const bash = (command: string) => calls({ name: 'bash', input: { command } })
const node = (script: string) => bash(`node -p "${script}"`)

function startLive(
  server: Server,
  root: string,
  args = ['Go on.'],
  step = '02-tool-use',
) {
  return startStep({ step, args, root, dotenv: envFile(server.url) })
}

describe('logs', { concurrency: 4 }, () => {
  test('runs of one second have a folder each, as the API gave it, and can be replayed', async (t) => {
    const usage = { input_tokens: 7, cache_read_input_tokens: 90, output_tokens: 3 }
    /** An answer that knows the working directory. */
    const inWorkdir =
      (make: (workdir: string) => Answer): Answer =>
      (response, body, n) =>
        make(/ in (.*)\.\n/.exec(body.system)?.[1] ?? '')(response, body, n)
    const script = () => [
      fail(429, 'rate_limit_error', 'Slow down', { 'retry-after-ms': '1' }),
      inWorkdir((workdir) => {
        const input = { path: join(workdir, 'a.txt'), content: 'a' }
        return calls({ name: 'write_file', input }, { usage })
      }),
      calls({ name: 'read_file', input: { path: 'a.txt' } }, { id: 'same' }),
      node("[process.cwd(), require('url').pathToFileURL(process.cwd()).href].join(' ')"),
      inWorkdir((workdir) => {
        const url = pathToFileURL(workdir).href
        return text(`Here: ${workdir} ${url} ${JSON.stringify(workdir)}; ${workdir}-2.`)
      }),
    ]
    const root = makeRoot(t)
    const server = await serve(t, byPrompt({ first: script(), second: script() }))
    const starts = ['first', 'second'].map((prompt) => startLive(server, root, [prompt]))
    const runs = await Promise.all(starts.map(({ result }) => result))
    const folders = runs.map(logFolder)
    assert.equal(new Set(folders).size, 2, `${folders}`)
    for (const run of runs) {
      assert.equal(run.code, 0, run.stderr)
      assert.match(run.stdout, /tokens 127 in, 18 out/)
      const { lines, header } = laneOf(run)
      assert.equal(header.mode, 'live')
      assert.equal(lines[2].event, 'api_error')
      assert.deepEqual(lines[3].usage, usage)
      assert.equal(lines[3].content[0].input.path, join('<workdir>', 'a.txt'))
      assert.match(lines[8].content[0].content, /^<workdir> <workdir>\s*$/)
      const [folded, beside] = lines[9].content[0].text.split('; ')
      assert.equal(folded, 'Here: <workdir> <workdir> "<workdir>"')
      assert.match(beside, /02-tool-use-2\.$/, 'another folder, of a like name')
    }
    await assertReplays('02-tool-use', runs[0])
  })

  test('when the reader of stdout goes, the run and its log stay', posix, async (t) => {
    const refused = fail(401, 'authentication_error', 'no')
    const server = await serve(t, [bash('echo one'), refused, text('Done.')])
    const root = makeRoot(t)
    fs.writeFileSync(join(root, '.env'), envFile(server.url))
    compile(root, 'steps/02-tool-use.ts')
    const step = `"${process.execPath}" steps/02-tool-use.mjs`
    const command = `printf 'first\\nsecond\\n' | ${step} 2>&1 | head -n 1; echo "\${PIPESTATUS[1]}"`
    const env = { PATH: process.env.PATH, HOME: root }
    const options = { cwd: root, env, encoding: 'utf8' } as const
    const { stdout } = await promisify(execFile)('bash', ['-c', command], options)
    const failed = /^02-tool-use, live: .*\n1\n$/
    assert.match(stdout, failed, 'exit code 1: a prompt has failed')
    const { messages } = laneOf({ stdout, root })
    assert.equal(messages.length, 5)
    assert.equal(messages[4].content[0].text, 'Done.')
  })

  test('no key is logged, shown or handed to a tool', async (t) => {
    const root = makeRoot(t)
    const workdir = join(root, '.workspace', '02-tool-use')
    fs.mkdirSync(workdir, { recursive: true })
    const secrets = {
      FOO_API_KEY: 'foo-secret-0123456789',
      GITHUB_TOKEN: 'ghp_secret0123456789',
      DB_PASSWORD: 'correct horse battery',
      GITHUB_PAT_WORK: 'pat-secret-0123456789',
      GH_PAT2: 'hub-secret-0123456789',
      API_KEY1: 'one-secret-0123456789',
      DB_PASS2: 'two-secret-0123456789',
      DB_PASS_OLD: 'old-secret-0123456789',
      JWT: 'jwt-secret-0123456789',
      SESSION_COOKIE: 'cookie-secret-0123456',
      ANTHROPIC_AUTH_TOKEN: 'sk-ant-exported-012345',
      ANTHROPIC_API_KEY: 'sk-ant-of-the-shell-01',
    }
    const replaced = ['first-token-0123456', 'an-old-password']
    const more = `X_TOKEN=${replaced[0]}\nX_TOKEN=short\n# DB_PASSWORD=${replaced[1]}\n`
    const all = [KEY, ...Object.values(secrets), ...replaced]
    fs.writeFileSync(join(workdir, 'leak.txt'), `${all.join('\n')}\n`)
    const answers = [
      node('JSON.stringify(process.env)'),
      calls({ name: 'read_file', input: { path: 'leak.txt' } }),
      node("require('fs').readFileSync('../../.env', 'utf8')"),
      bash(`echo ${'.'.repeat(72 - 'echo'.length - 20)} ${KEY}`),
      calls({ name: 'write_file', input: { path: `${KEY}.txt`, content: all.join() } }),
      text(`They are ${all.join(', ')}.`),
      fail(401, 'authentication_error', `invalid x-api-key: ${KEY}`),
    ]
    const stdin = `My key is ${KEY}.\nAnd now?\n`
    const run = await runLive(t, answers, { root, stdin, env: secrets, more })
    assert.match(run.stdout, /\nThey are \[redacted\], \[redacted\]/)

    const path = join(root, logFolder(run), 'parent.log')
    for (const place of [run.stdout, run.stderr, fs.readFileSync(path, 'utf8')]) {
      for (const secret of all) {
        const at = place.indexOf(secret.slice(0, 8))
        assert(at < 0, `${secret} stands in: ${place.slice(at - 60, at + 40)}`)
      }
    }
    assert.match(fs.readFileSync(path, 'utf8'), /ANTHROPIC_API_KEY=\[redacted\]/)
    const environment = JSON.parse(run.requests[1].messages[2].content[0].content)
    assert(Object.keys(environment).length > 3)
    for (const name of ['ANTHROPIC_API_KEY', ...Object.keys(secrets)]) {
      assert.equal(environment[name], undefined, name)
    }
    for (const secret of all) {
      assert(!Object.values(environment).some((value) => String(value).includes(secret)))
    }
  })
})

describe('a lane', () => {
  /** The lanes of a run that works in a folder of this name, and where they are logged. */
  function start(t: Context, name = 'own', files: Record<string, string> = {}) {
    const base = fs.realpathSync(fs.mkdtempSync(join(tmpdir(), 'lanes-')))
    t.after(() => fs.rmSync(base, { recursive: true }))
    const [workdir, logs] = [join(base, name), join(base, 'logs')]
    for (const folder of [workdir, logs]) fs.mkdirSync(folder)
    for (const lane in files) fs.writeFileSync(join(logs, `${lane}.log`), files[lane])
    const place = { step: '11-x', number: '11', isNew: true, logs, workdir }
    const lanes = () =>
      new Lanes({ step: '11-x', mode: 'offline', model: 'scripted' }, place)
    return { workdir, logs, lanes }
  }
  const settings = (workdir: string) => ({ system: `In ${workdir}.`, tools: [], workdir })
  const lines = (...values: object[]) =>
    values.map((value) => `${JSON.stringify(value)}\n`).join('')
  const HEADER = { step: '11-x', lane: 'sub-1', tools: [], system: '' }
  const user = (content: unknown) => ({ role: 'user' as const, content })
  const call = (id: string) => {
    const content = [{ type: 'tool_use', id, name: 'bash', input: {} }]
    return { role: 'assistant', content } as const
  }
  const result = (id: string) =>
    user([{ type: 'tool_result', tool_use_id: id, content: 'done' }]) as MessageParam

  for (const name of ['own', 'a$$b', '$&']) {
    test(`only its own directory is <workdir>, and it reads back as said: ${name}`, (t) => {
      const { workdir, logs, lanes } = start(t, name)
      const tree = join(`${workdir}.worktrees`, 'sub-1')
      fs.mkdirSync(tree, { recursive: true })
      const run = lanes()
      const others = `${workdir}-2 <workdir> <\\workdir> 👩 \ud83d`
      const [parent, child]: MessageParam[][] = [[], []]
      run.open(parent, settings(workdir))
      run.open(child, settings(tree))
      for (const messages of [parent, child]) {
        messages.push({ role: 'user', content: `${workdir}/a ${tree}/a ${others}` })
        run.log(messages, messages[0])
      }
      const logged = `${workdir}-2 <\\workdir> <\\\\workdir> 👩 \ufffd`
      const there = `../${name}.worktrees/sub-1`
      const [first, second] = readFolder(logs).map(({ messages }) => messages[0].content)
      assert.equal(first, `<workdir>/a ${there}/a ${logged}`)
      assert.equal(second, `../${name}/a <workdir>/a ${logged}`)
      const again = lanes()
      const [{ content }] = recoverLane({ lanes: again }, 'parent', workdir).messages
      assert.equal(content, `${workdir}/a ${there}/a ${others.toWellFormed()}`)
      assert.equal(run.of(child).restore('<workdir>/a'), `${tree}/a`)
    })
  }

  test('any name sorts, and only children are resumed or counted on', (t) => {
    const all = 'parent sub-1 sub-1.summary-1 sub-1.summary-10 sub-2 sub-10'.split(' ')
    const files = all.map((lane) => [lane, lines({ ...HEADER, lane })])
    const { logs, lanes } = start(t, 'own', Object.fromEntries(files))
    const read = readFolder(logs).map(({ name }) => name)
    assert.deepEqual(read, all)
    const run = lanes()
    const kinds = ['sub', 'sub', 'sub-1.summary', 'sub-2.summary']
    const next = kinds.map((kind) => run.next(kind))
    assert.deepEqual(next, ['sub-11', 'sub-12', 'sub-1.summary-11', 'sub-2.summary-1'])
    const message = 'There is no sub-1.summary-1 in this run, only sub-1, sub-2, sub-10.'
    assert.throws(() => recoverLane({ lanes: run }, 'sub-1.summary-1'), { message })
  })

  const by = 'sub-1.summary-1'
  const COMPACTED = { level: 'info', event: 'compacted', replaced: [2, 3], by }
  const BEFORE = [HEADER, user('one'), call('tool_1'), result('tool_1'), call('tool_2')]
  const AFTER = [user([{ type: 'text', text: 'summary' }]), result('tool_2')]

  test('a compacted one goes on with the history it came to, and with its ids', (t) => {
    const text = lines(...BEFORE, COMPACTED, ...AFTER)
    const { workdir, logs, lanes } = start(t, 'own', { 'sub-1': text })
    const [run, messages] = [lanes(), [] as MessageParam[]]
    reopenLane({ lanes: run }, messages, recoverLane({ lanes: run }, 'sub-1', workdir))
    assert.deepEqual(messages, [BEFORE[1], AFTER[0], BEFORE[4], AFTER[1]])
    for (const message of [call('toolu_x'), result('toolu_x')])
      run.log(messages, message as MessageParam)
    const path = join(logs, 'sub-1.log')
    const now = fs.readFileSync(path, 'utf8')
    assert(now.startsWith(text))
    assert.deepEqual(now.match(/tool_\d/g)?.slice(-2), ['tool_3', 'tool_3'])
  })

  test('killed before its summary was logged, it has not been compacted', (t) => {
    const whole = lines(...BEFORE)
    for (const rest of ['', '{"level":"in', lines(AFTER[0]).slice(0, -20)]) {
      const text = whole + lines(COMPACTED) + rest
      const { logs, lanes } = start(t, 'own', { 'sub-1': text })
      assert.deepEqual(recoverLane({ lanes: lanes() }, 'sub-1').messages, BEFORE.slice(1))
      assert.equal(fs.readFileSync(join(logs, 'sub-1.log'), 'utf8'), whole)
    }
  })

  test('numbers that fit no history are refused by line', (t) => {
    for (const replaced of [undefined, [], 'all', [0], [5], [1.5], ['1']]) {
      const text = lines(...BEFORE, { ...COMPACTED, replaced }, ...AFTER)
      const { lanes } = start(t, 'own', { 'sub-1': text })
      const said = /^Error: sub-1\.log, line 6: `replaced` does not fit the history\.$/
      assert.throws(() => recoverLane({ lanes: lanes() }, 'sub-1'), said)
    }
  })

  test('its sizes are those of the requests that the server received', async (t) => {
    const read = { name: 'read_file', id: 'tool_1', input: { path: 'ä.txt' } }
    const run = await runLive(t, [calls(read), text('Done.')], { stdin: 'Go on: 中.\n' })
    const sizes = run.requests.map(({ system, tools, messages }) => {
      const folded = system.replace(system.match(/ in (.*)\.\n/)[1], '<workdir>')
      return sizeOf([folded, describeTools(tools), ...messages])
    })
    const path = join(run.root, logFolder(run), 'parent.log')
    assert.deepEqual(requestSizes(readLaneFile(path)), sizes)
    const most = sizes[1].toLocaleString('en-US')
    assert(run.stdout.includes(`largest request ${most} bytes`), run.stdout)
  })
})
