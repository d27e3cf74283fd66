/** Going live: which mode a run is in, whose key it uses, and what a failure says. */
import assert from 'node:assert/strict'
import { copyFileSync, existsSync, mkdirSync, readdirSync, writeFileSync } from 'node:fs'
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
  calls,
  editStep,
  fail,
  hangUp,
  makeRoot,
  raw,
  runStep,
  startServer,
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
    assert(existsSync(join(run.root, '.workspace', '01-agent-loop')))
  })

  test('a key that is only exported is mentioned, not used', async (t) => {
    const server = await serve(t, [])
    const root = makeRoot(t)
    copyFileSync(join(import.meta.dirname, '../.env.example'), join(root, '.env'))
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

  test('a token in .env drops the exported key', async (t) => {
    const server = await serve(t, [text('Hello.')], { auth: 'bearer', key: KEY })
    const dotenv = `ANTHROPIC_AUTH_TOKEN=${KEY}\nANTHROPIC_BASE_URL=${server.url}\n`
    const env = { ANTHROPIC_API_KEY: OTHER }
    const run = await runStep({ ...HI, dotenv, env, root: makeRoot(t) })
    assert.equal(run.code, 0, run.stderr)
    assert.equal(server.requests[0].headers['x-api-key'], KEY)
    assert.doesNotMatch(run.stdout, /exported|shell/)
  })

  test('.env in UTF-8 with BOM and CRLF is read', async (t) => {
    const server = await serve(t, [text('Hello.')])
    const dotenv = `\ufeff${envFile(server.url).replaceAll('\n', '\r\n')}`
    const run = await runStep({ ...HI, dotenv, root: makeRoot(t) })
    assert.equal(run.stderr, '')
    assert.equal(server.requests[0].headers['x-api-key'], KEY)
    assert.equal(server.requests[0].body.model, MODEL)
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
    mkdirSync(join(root, 'mine'))
    writeFileSync(join(root, 'mine', 'old.txt'), 'old')
    const write = { name: 'bash', input: { command: 'echo new> new.txt' } }
    const run = await runLive(t, [calls(write), text('So.')], {
      ...HI,
      root,
      more: 'WORKDIR=mine',
    })
    assert.deepEqual(readdirSync(join(root, 'mine')), ['new.txt', 'old.txt'])
    assert(run.requests[0].system.startsWith(`You are a coding agent in ${root}`))
    assert.match(laneOf(run).header.system, /^You are a coding agent in <workdir>\.\n/)
    assert(!existsSync(join(root, '.workspace', '01-agent-loop')))
  })

  test('what cannot be used is said in one line, without the key', async (t) => {
    const root = makeRoot(t)
    const url = 'http://127.0.0.1:9'
    const wrong: [string, RegExp][] = [
      [`ANTHROPIC_API_KEY=“${KEY}”`, /^ANTHROPIC_API_KEY in \.env .*a curly quote/],
      [`ANTHROPIC_AUTH_TOKEN="${KEY} "`, /^ANTHROPIC_AUTH_TOKEN in \.env .*a space/],
      [envFile('api.example.com/v1'), /^ANTHROPIC_BASE_URL is api\.example\.com\/v1: /],
      [envFile('http://me:s3cret@host'), /^ANTHROPIC_BASE_URL must hold no user name/],
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

  test('each is one line with endpoint and model, and the session goes on', async (t) => {
    const overloaded = fail(529, 'overloaded_error', 'Overloaded', AGAIN)
    const cases = {
      'a wrong key': [fail(401, 'authentication_error', `invalid x-api-key ${KEY}`)],
      forbidden: [fail(403, 'permission_error', 'Not yours.')],
      'no model': [fail(404, 'not_found_error', `model: ${MODEL}`)],
      'too large': [fail(413, 'request_too_large', 'Request exceeds the maximum size')],
      overloaded: [overloaded, overloaded, overloaded],
      'a hang-up': [1, 2, 3].map(() => hangUp('{"id":"msg_1","type":"mess')),
      gateway: [1, 2, 3].map(() => raw(502, HTML, page)),
      html: [raw(200, HTML, page)],
      object: [raw(200, {})],
      'an error': [raw(200, { type: 'error', error: { message: 'Out of credit.' } })],
      nothing: [raw(200, '')],
      stream: [raw(200, `event: message_start\n${'d'.repeat(160)} ${KEY}`)],
      'another protocol': [raw(400, { error: 'model not found' })],
      'yet another': [raw(400, { code: 1211, msg: '模型不存在' })],
      'many lines': [fail(400, 'invalid_request_error', `One.\n    at two (3:4)\n`)],
      'come tomorrow': [
        fail(429, 'rate_limit_error', 'Daily quota used up', { 'retry-after': '3600' }),
      ],
      'in milliseconds': [
        fail(429, 'rate_limit_error', 'Used up', { 'retry-after-ms': '7200000' }),
      ],
      elsewhere: [raw(307, '', { location: 'https://example.com/v1/messages' })],
    }
    const answers = byPrompt({
      first: [calls({ name: 'bash', input: { command: 'echo one' } }), text('One.')],
      ...cases,
      limited: [fail(429, 'rate_limit_error', 'Slow down', AGAIN), text('Later.')],
      last: [text('Goodbye.')],
    })
    const prompts = ['first', ...Object.keys(cases), 'limited', 'last']
    const run = await runLive(t, answers, { stdin: `${prompts.join('\n')}\n` })

    const said = run.stderr.trim().split('\n')
    const at = ` (${MODEL} at ${run.server.url})`
    assert.deepEqual(said, [
      `401 authentication_error: invalid x-api-key [redacted]${at}; check ANTHROPIC_API_KEY in .env, or call it ANTHROPIC_AUTH_TOKEN`,
      `403 permission_error: Not yours.${at}; check ANTHROPIC_API_KEY in .env`,
      `404 not_found_error: model: ${MODEL}${at}; check MODEL_ID and ANTHROPIC_BASE_URL`,
      `413 request_too_large: Request exceeds the maximum size${at}`,
      `529 overloaded_error: Overloaded${at}; try again later`,
      `no connection: UND_ERR_SOCKET other side closed${at}; is ANTHROPIC_BASE_URL right?`,
      `502: HTML instead of JSON${at}; try again later`,
      `the endpoint answered HTML instead of JSON${at}; is ANTHROPIC_BASE_URL right?`,
      `the reply was no message: {}${at}`,
      `the reply was an error: Out of credit.${at}`,
      `the endpoint answered nothing instead of JSON${at}; is ANTHROPIC_BASE_URL right?`,
      `the endpoint answered text (event: message_start ${'d'.repeat(160)} [redacted]) instead of JSON${at}; is ANTHROPIC_BASE_URL right?`,
      `400: model not found${at}`,
      `400: 模型不存在${at}`,
      `400 invalid_request_error: One. at two (3:4)${at}`,
      `429 rate_limit_error: Daily quota used up${at}; try again in 3600 s`,
      `429 rate_limit_error: Used up${at}; try again in 7200 s`,
      `the endpoint redirects to https://example.com/v1/messages: set ANTHROPIC_BASE_URL to where the API is${at}`,
    ])
    assert.equal(run.code, 1)
    assert.match(run.stdout, /\n429: Slow down; trying again\n\nLater\.\n/)
    assert.match(run.stdout, /\nGoodbye\.\n/)
    assert.equal(about(run.requests, 'overloaded').length, 3, 'the SDK tries three times')

    const { messages, events } = laneOf(run)
    assert.equal(messages[2].content[0].content.trim(), 'one', 'what was done stays')
    assert.deepEqual(
      messages
        .slice(4)
        .map(({ role, content }) => content[0].text ?? `${role}: ${content}`),
      [...Object.keys(cases), 'limited']
        .map((prompt) => `user: ${prompt}`)
        .concat('Later.', 'user: last', 'Goodbye.'),
    )
    const logged = events.map(({ event, status }) => [event, status].join(' ').trim())
    assert.deepEqual(logged, [
      ...['401', '403', '404', '413', '529', '529', '529'].map((n) => `api_error ${n}`),
      ...['no_connection', 'no_connection', 'no_connection'],
      ...['api_error 502', 'api_error 502', 'api_error 502'],
      ...['bad_reply', 'bad_reply', 'bad_reply', 'bad_reply', 'bad_reply'],
      ...['api_error 400', 'api_error 400', 'api_error 400', 'api_error 429'],
      ...['api_error 429', 'bad_reply', 'api_error 429'],
    ])
    assert.deepEqual(events.at(-1)?.error, {
      type: 'rate_limit_error',
      message: 'Slow down',
    })
    await assertReplays('02-tool-use', run)
  })

  test('no server: the run fails, and its log says why', async (t) => {
    const server = await startServer([])
    await server.close()
    const dotenv = envFile(server.url.replace('127.0.0.1', 'localhost'))
    const run = await runStep({ ...HI, dotenv, root: makeRoot(t) })
    const line =
      /^no connection: .*ECONNREFUSED.* \(test-model at http:.*BASE_URL right\?\n$/
    assert.match(run.stderr, line)
    assert.equal(run.code, 1)
    const { messages, events } = laneOf(run)
    assert.deepEqual(messages, [{ role: 'user', content: 'Hi.' }])
    assert.deepEqual(
      events.map(({ event }) => event),
      ['no_connection', 'no_connection', 'no_connection'],
    )
    assert.match(events[0].message, /ECONNREFUSED/)
  })

  test('max_tokens that only streaming allows: a sentence, nothing sent', async (t) => {
    const root = makeRoot(t)
    editStep(root, '01-agent-loop', 'max_tokens: 8000', 'max_tokens: 100000')
    const run = await runLive(t, [], { ...HI, root })
    assert.match(
      run.stderr,
      /^max_tokens is too large for a request without streaming.*\n$/,
    )
    assert.equal(run.code, 1)
    assert.equal(run.requests.length, 0)
  })

  test('REQUEST_LIMIT ends a prompt, whoever asks, and the next one begins anew', async (t) => {
    const again = calls({ name: 'bash', input: { command: 'echo on' } })
    const task = calls({ name: 'task', input: { prompt: 'round and round' } })
    const content = [
      { type: 'server_tool_use', id: 'srvtoolu_1', name: 'web_search', input: {} },
    ]
    const paused = raw(200, { role: 'assistant', content, stop_reason: 'pause_turn' })
    const run = await runLive(
      t,
      byPrompt({
        alone: Array(9).fill(again),
        child: [task],
        'round and round': Array(9).fill(again),
        paused: Array(9).fill(paused),
        last: [text('Goodbye.')],
      }),
      {
        step: '04-subagent',
        more: 'REQUEST_LIMIT=4',
        stdin: 'alone\nchild\npaused\nlast\n',
      },
    )
    const line = 'stopped after 4 requests for one prompt (see REQUEST_LIMIT)\n'
    assert.equal(run.stderr, line.repeat(3))
    assert.equal(run.code, 1)
    assert.equal(about(run.requests, 'alone').length, 4)
    assert.equal(about(run.requests, 'child').length, 1)
    assert.equal(about(run.requests, 'round and round').length, 3)
    assert.equal(about(run.requests, 'paused').length, 4)
    assert.match(run.stdout, /\nGoodbye\.\n/)
    const told = laneOf(run).messages.at(-4)?.content[0]
    assert.match(told.content, /stopped after 4 requests/)
    assert.equal(told.is_error, true)
  })
})
