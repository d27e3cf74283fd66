/** Going live: which mode a run is in, whose key it uses, and what a failure says. */
import assert from 'node:assert/strict'
import * as fs from 'node:fs'
import { join } from 'node:path'
import { describe, test } from 'node:test'
import {
  about,
  assertReplays,
  byPrompt,
  envFile,
  KEY,
  laneOf,
  logFolder,
  MODEL,
  runLive,
  serve,
} from './live.ts'
import {
  type Answer,
  calls,
  fail,
  hangUp,
  makeRoot,
  raw,
  readLane,
  runStep,
  text,
} from './server.ts'

const OTHER = 'sk-exported-9876543210'
const HI = { step: '01-agent-loop', args: ['Hi.'] }
const utf16 = (content: string) => Buffer.from(content, 'utf16le')

describe('the mode', { concurrency: 4 }, () => {
  test('a key in .env makes a run live, and .env wins over the shell', async (t) => {
    const env = {
      ANTHROPIC_API_KEY: OTHER,
      ANTHROPIC_AUTH_TOKEN: OTHER,
      ANTHROPIC_BASE_URL: 'http://127.0.0.1:9',
      ANTHROPIC_MODEL: 'another',
      MODEL_ID: 'another',
      REQUEST_LIMIT: 'none',
      ANTHROPIC_LOG: 'debug',
      ANTHROPIC_CUSTOM_HEADERS: 'x-custom: 1',
    }
    const run = await runLive(t, [text('Hello.')], { ...HI, env })
    const { headers, body } = run.server.requests[0]
    const first = `01-agent-loop, live: ${MODEL} at ${run.server.url}, key from .env; log:`
    assert.equal(run.stdout.indexOf(first), 0, run.stdout)
    assert.match(logFolder(run), /^logs.live.01-agent-loop-\d{4}-\d\d-\d\d-\d{6}$/)
    assert.equal(headers['x-api-key'], KEY)
    assert.equal(headers['x-custom'], undefined)
    assert.equal(body.model, MODEL)
    assert.equal(run.code, 0)
    assert.equal(run.stderr, '')
    assert.match(run.stdout, /\nHello\.\n\nparent: 2 messages, .*tokens 10 in, 5 out\n/)
    assert.equal(run.stdout.split('\n').length, 10)
    assert(fs.existsSync(join(run.root, '.workspace', '01-agent-loop')))
  })

  test('a key that is only exported is mentioned, not used', async (t) => {
    const server = await serve(t, [])
    const root = makeRoot(t)
    fs.copyFileSync(join(import.meta.dirname, '../.env.example'), join(root, '.env'))
    const env = { ANTHROPIC_API_KEY: OTHER, ANTHROPIC_BASE_URL: server.url }
    const run = await runStep({ step: '01-agent-loop', env, root })
    assert.match(
      run.stdout,
      /^01-agent-loop, offline: .*no key; log: logs.01-agent-loop\n/,
    )
    assert.match(run.stdout, /\n\.env names no key: set ANTHROPIC_API_KEY or /)
    assert.match(
      run.stdout,
      /\nANTHROPIC_API_KEY is set in the shell, .*not used.*--live/,
    )
    assert.equal(run.code, 0)
    assert.equal(server.requests.length, 0)
  })

  test('--live asks the shell where .env is silent', async (t) => {
    const server = await serve(t, [text('Hello.')], { key: OTHER })
    const run = await runStep({
      ...HI,
      args: ['--live', 'Hi.'],
      env: {
        ANTHROPIC_AUTH_TOKEN: OTHER,
        ANTHROPIC_BASE_URL: server.url,
        MODEL_ID: 'another',
      },
      dotenv: `MODEL_ID=${MODEL}\n`,
      root: makeRoot(t),
    })
    const first = `01-agent-loop, live: ${MODEL} at ${server.url}, key from the shell;`
    assert.equal(run.stdout.indexOf(first), 0, run.stdout + run.stderr)
    assert.equal(server.requests[0].headers.authorization, `Bearer ${OTHER}`)
    assert.equal(server.requests[0].body.model, MODEL)
    assert.deepEqual(server.refused, [])
  })

  test('--offline replays even with a key', async (t) => {
    const run = await runLive(t, [], { ...HI, args: ['--offline'] })
    assert.match(run.stdout, /^01-agent-loop, offline: /)
    assert.equal(run.code, 0)
    assert.equal(run.requests.length, 0)
  })

  test('a token in .env, with BOM and CRLF, drops the exported key', async (t) => {
    const server = await serve(t, [text('Hello.')], { auth: 'bearer', key: KEY })
    const lines = [
      `\ufeffANTHROPIC_AUTH_TOKEN=${KEY}`,
      `ANTHROPIC_BASE_URL=${server.url}`,
    ]
    const env = { ANTHROPIC_API_KEY: OTHER }
    const dotenv = lines.join('\r\n')
    const run = await runStep({ ...HI, dotenv, env, root: makeRoot(t) })
    assert.equal(run.code, 0, run.stderr)
    assert.equal(server.requests[0].headers['x-api-key'], KEY)
    assert.doesNotMatch(run.stdout, /exported|shell/)
  })

  test('.env in UTF-16, with and without BOM, is reported by name', async (t) => {
    const root = makeRoot(t)
    const said = /\.env is not UTF-8 text and was not read: save it as UTF-8/
    const content = envFile('http://127.0.0.1:9')
    const offline = await runStep({ step: '01-agent-loop', dotenv: utf16(content), root })
    assert.match(offline.stdout, said)
    assert.equal(offline.code, 0)
    const dotenv = utf16(`\ufeff${content}`)
    const live = await runStep({ ...HI, args: ['--live', 'Hi.'], dotenv, root })
    assert.match(live.stderr, said)
    assert.match(live.stderr, /\n--live needs a key\. .* copy \.env\.example to \.env /)
    assert.equal(live.code, 1)
  })

  test("WORKDIR names a directory of one's own, and nothing in it is lost", async (t) => {
    const root = makeRoot(t)
    fs.mkdirSync(join(root, 'mine'))
    fs.writeFileSync(join(root, 'mine', 'old.txt'), 'old')
    const write = { name: 'bash', input: { command: 'echo new> new.txt' } }
    const run = await runLive(t, [calls(write), text('So.')], {
      ...HI,
      root,
      more: 'WORKDIR=mine',
    })
    assert.deepEqual(fs.readdirSync(join(root, 'mine')), ['new.txt', 'old.txt'])
    assert(run.requests[0].system.startsWith(`You are a coding agent in ${root}`))
    assert.match(laneOf(run).header.system, /^You are a coding agent in <workdir>\.\n/)
    assert(!fs.existsSync(join(root, '.workspace', '01-agent-loop')))
  })

  test('what cannot be used is said in one line, without the key', async (t) => {
    const root = makeRoot(t)
    const url = 'http://127.0.0.1:9'
    // biome-ignore format: a table
    const wrong: [string, RegExp][] = [
      [`ANTHROPIC_API_KEY=“${KEY}”`, /^ANTHROPIC_API_KEY in \.env .*a curly quote/],
      [`ANTHROPIC_AUTH_TOKEN="${KEY} "`, /^ANTHROPIC_AUTH_TOKEN in \.env .*a space/],
      [envFile('api.example.com/v1'), /^ANTHROPIC_BASE_URL must be an http:\/\/ or https/],
      [envFile('http://me:s3cret@host'), /^ANTHROPIC_BASE_URL must .* without user name/],
      [envFile(url, 'REQUEST_LIMIT=0'), /^REQUEST_LIMIT is 0: .* whole number from 1/],
    ]
    for (const [dotenv, said] of wrong) {
      const run = await runStep({ ...HI, dotenv, root })
      assert.match(run.stderr, said)
      assert.equal(run.stderr.split('\n').length, 2)
      assert.doesNotMatch(run.stdout + run.stderr, new RegExp(`${KEY}|s3cret`))
      assert.equal(run.code, 1)
    }
  })
})

describe("a reader's own step", { concurrency: 4 }, () => {
  /** Writes steps/my-agent.ts, another step with changes. */
  function copy(root: string, step: string, from: RegExp, to: string) {
    const path = (name: string) => join(root, 'steps', `${name}.ts`)
    const source = fs.readFileSync(path(step), 'utf8')
    assert.match(source, from)
    fs.writeFileSync(path('my-agent'), source.replace(from, to))
  }
  const run = (root: string, args: string[] = [], dotenv = '', tsx = false) =>
    runStep({ step: 'my-agent', root, args, dotenv, tsx })

  test('--help says what the command takes, whatever else is wrong', async (t) => {
    const root = makeRoot(t)
    copy(root, '01-agent-loop', /01 · /, '')
    for (const args of [['--help'], ['-h', '--live', 'Hi.']]) {
      const { code, stdout, stderr } = await run(root, args, 'ANTHROPIC_API_KEY="a b"')
      assert.deepEqual([code, stderr], [0, ''])
      assert.match(stdout, /^Usage: npx tsx .*\[PROMPT\]\n/)
      assert.equal(
        stdout.match(/^ .*--(live|offline|replay|continue|help) /gm)?.length,
        5,
      )
    }
    const { code, stderr } = await run(root, ['--helpme'])
    assert.equal(code, 1)
    assert.match(stderr, /^Unknown option '--helpme'\. [^\n]*\n$/)
  })

  const HEADER = /^\/\*\*[\s\S]*?\*\//
  // biome-ignore format: a table
  const HEADERS: [what: string, from: RegExp, to: string][] = [
    ['the header as it is', /^/, ''],
    ['a header of one line', HEADER, '// 04 · Mine'],
    ['only what it builds on', HEADER, '/**\n * Mine\n *\n * Builds on  04\n */'],
  ]
  for (const [what, from, to] of HEADERS) {
    test(`a copy under another name runs like its original: ${what}`, async (t) => {
      const root = makeRoot(t)
      copy(root, '04-subagent', from, to)
      const { code, stdout, stderr } = await run(root)
      assert.deepEqual([code, stderr], [0, ''])
      assert.match(stdout, /^my-agent, .*04-subagent, no key; log: logs.my-agent\n/)
      for (const lane of ['parent', 'sub-1']) {
        const own = readLane(root, `logs/my-agent/${lane}.log`)
        const recorded = readLane(root, `logs/recorded/04-subagent/${lane}.log`)
        assert.deepEqual(own.header, { ...recorded.header, step: 'my-agent' })
        assert.deepEqual(own.messages, recorded.messages)
      }
      const files = fs.readdirSync(join(root, '.workspace/offline/my-agent'))
      assert.deepEqual(files, ['hello.mjs'], 'no login app')
      if (to !== '') return
      const { stderr: refused } = await run(root, ['--continue'], envFile('http://x'))
      assert.match(refused, /^--continue comes with step 09/)
    })
  }

  test('a copy of a later step has its files; no header is told', async (t) => {
    const root = makeRoot(t)
    copy(root, '05-agent-profiles', /^/, '')
    assert.equal((await run(root)).code, 0)
    assert(fs.existsSync(join(root, '.workspace/offline/my-agent/test.mjs')))
    copy(root, '04-subagent', HEADER, '')
    const { code, stderr } = await run(root, [], '', true) // it names its file
    assert.equal(code, 1)
    assert.match(stderr, /^my-agent\.ts does not say which step .*"04 · ".*\n$/)
  })

  const ANSWERS: [returned: string, named: string][] = [
    ["{ stop: 'end_turn', text: 'Hi.' }", '{"stop":"end_turn","text":"Hi."}'],
    ["{ stopReason: 'end_turn' }", '{"stopReason":"end_turn"}'],
    ['undefined', 'nothing'],
  ]
  test('a loop that returns something else is told what is wanted', async (t) => {
    const root = makeRoot(t)
    for (const [returned, named] of ANSWERS) {
      const loop = /(?<=await session\.run\(PROMPT, )[\s\S]*/
      copy(root, '01-agent-loop', loop, `() => (${returned}))\n`)
      const { code, stderr } = await run(root)
      const wanted = 'the loop to return { stopReason, text }, strings'
      assert.deepEqual([code, stderr], [1, `session.run wants ${wanted}, not ${named}\n`])
    }
  })
})

describe('credentials', { concurrency: 4 }, () => {
  for (const [end, auth] of [
    ['/', 'x-api-key'],
    ['/v1', 'bearer'],
    ['/v1/', 'x-api-key'],
    ['/v1/messages', 'bearer'],
  ] as const) {
    test(`a base URL that ends in ${end}, and only ${auth} is read`, async (t) => {
      const server = await serve(t, [text('Hello.')], { auth, key: 'short-key' })
      const dotenv = envFile(server.url + end).replace(KEY, 'short-key')
      const run = await runStep({ ...HI, dotenv, root: makeRoot(t) })
      assert.equal(run.stderr, '')
      assert.deepEqual(server.refused, [])
      assert.equal(server.requests.length, 1)
      const { headers } = server.requests[0]
      assert.equal(headers['x-api-key'], 'short-key')
      assert.equal(headers.authorization, 'Bearer short-key')
      assert.match(run.stdout, /\nANTHROPIC_API_KEY has under 12 .*not redacted/)
    })
  }
})

describe('failures', { concurrency: 4 }, () => {
  const AGAIN = { 'retry-after-ms': '1' }
  const HTML = '<!doctype html>\n<html><body>Bad gateway</body></html>'
  const page = { 'content-type': 'text/html', ...AGAIN }
  const URL_RIGHT = 'is ANTHROPIC_BASE_URL right?'

  // biome-ignore format: a table
  const CASES: [prompt: string, answers: Answer[], said: string, advice?: string][] = [
    ['a wrong key', [fail(401, 'authentication_error', `invalid x-api-key ${KEY}`)], '401 authentication_error: invalid x-api-key [redacted]', 'check ANTHROPIC_API_KEY in .env, or call it ANTHROPIC_AUTH_TOKEN'],
    ['forbidden', [fail(403, 'permission_error', 'Not yours.')], '403 permission_error: Not yours.', 'check ANTHROPIC_API_KEY in .env'],
    ['no model', [fail(404, 'not_found_error', 'model: x')], '404 not_found_error: model: x', 'check MODEL_ID and ANTHROPIC_BASE_URL'],
    ['too large', [fail(413, 'request_too_large', 'Too large')], '413 request_too_large: Too large'],
    ['overloaded', Array(3).fill(fail(529, 'overloaded_error', 'Overloaded', AGAIN)), '529 overloaded_error: Overloaded', 'try again later'],
    ['a hang-up', Array(3).fill(hangUp('{"id":"msg_1","type":"mess')), 'no connection: UND_ERR_SOCKET other side closed', URL_RIGHT],
    ['gateway', Array(3).fill(raw(502, HTML, page)), '502: HTML instead of JSON', 'try again later'],
    ['html', [raw(200, HTML, page)], `the endpoint answered HTML instead of JSON: ${URL_RIGHT}`],
    ['object', [raw(200, {})], 'the reply was no message: {}'],
    ['an error', [raw(200, { type: 'error', error: { message: 'Out of credit.' } })], 'the reply was an error: Out of credit.'],
    ['nothing', [raw(200, '')], `the endpoint answered nothing: ${URL_RIGHT}`],
    ['stream', [raw(200, `event: message_start\n${KEY}`)], `the endpoint answered event: message_start [redacted]: ${URL_RIGHT}`],
    ['another protocol', [raw(400, { error: 'model not found' })], '400: model not found'],
    ['yet another', [raw(400, { code: 1211, msg: '模型不存在' })], '400: 模型不存在'],
    ['many lines', [fail(400, 'invalid_request_error', 'One.\n    at two (3:4)\n')], '400 invalid_request_error: One. at two (3:4)'],
    ['tomorrow', [fail(429, 'rate_limit_error', 'Used up', { 'retry-after': '3600' })], '429 rate_limit_error: Used up', 'try again in 3600 s'],
    ['in ms', [fail(429, 'rate_limit_error', 'Used up', { 'retry-after-ms': '7200000' })], '429 rate_limit_error: Used up', 'try again in 7200 s'],
    ['elsewhere', Array(3).fill(raw(307, '', { location: 'https://example.com/v1' })), 'no connection: unexpected redirect', URL_RIGHT],
  ]

  test('each is one line with endpoint and model, and the session goes on', async (t) => {
    const answers = byPrompt({
      first: [calls({ name: 'bash', input: { command: 'echo one' } }), text('One.')],
      ...Object.fromEntries(CASES.map(([prompt, all]) => [prompt, all])),
      limited: [fail(429, 'rate_limit_error', 'Slow down', AGAIN), text('Later.')],
      last: [text('Goodbye.')],
    })
    const failing = CASES.map(([prompt]) => prompt)
    const prompts = ['first', ...failing, 'limited', 'last']
    const run = await runLive(t, answers, { stdin: `${prompts.join('\n')}\n` })
    const at = ` (${MODEL} at ${run.server.url})`
    assert.deepEqual(
      run.stderr.trim().split('\n'),
      CASES.map(([, , said, advice]) => `${said}${at}${advice ? `; ${advice}` : ''}`),
    )
    assert.equal(run.code, 1)
    assert.match(run.stdout, /\nLater\.\n/)
    assert.match(run.stdout, /\nGoodbye\.\n/)

    const { messages, events } = laneOf(run)
    assert.equal(messages[2].content[0].content.trim(), 'one', 'what was done stays')
    const said = messages.slice(4).map(({ content }) => content[0].text ?? content)
    assert.deepEqual(said, [...failing, 'limited', 'Later.', 'last', 'Goodbye.'])
    const requests = CASES.flatMap(([, answers]) => answers)
    assert.equal(events.length, requests.length + 1, 'each that failed is logged')
    const slow = { type: 'rate_limit_error', message: 'Slow down' }
    assert.deepEqual(events.at(-1)?.error, slow)
    await assertReplays('02-tool-use', run)
  })

  test('REQUEST_LIMIT ends a prompt, whoever asks, and the next one begins anew', async (t) => {
    const again = calls({ name: 'bash', input: { command: 'echo on' } })
    const task = calls({ name: 'task', input: { prompt: 'round and round' } })
    const round = Array(9).fill(again)
    const last = [text('Goodbye.')]
    const script = byPrompt({
      alone: round,
      child: [task],
      'round and round': round,
      last,
    })
    const options = { step: '04-subagent', stdin: 'alone\nchild\nlast\n' }
    const run = await runLive(t, script, { ...options, more: 'REQUEST_LIMIT=4' })
    const line = 'stopped after 4 requests for one prompt (see REQUEST_LIMIT)\n'
    assert.equal(run.stderr, line.repeat(2))
    assert.equal(run.code, 1)
    assert.equal(about(run.requests, 'alone').length, 4)
    assert.equal(about(run.requests, 'child').length, 1)
    assert.equal(about(run.requests, 'round and round').length, 3)
    assert.match(run.stdout, /\nGoodbye\.\n/)
    const told = laneOf(run).messages.at(-3)?.content[0]
    assert.match(told.content, /stopped after 4 requests/)
    assert.equal(told.is_error, true)
  })
})
