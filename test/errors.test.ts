/** What a failure is said to be, in one line. */
import assert from 'node:assert/strict'
import process from 'node:process'
import { describe, test } from 'node:test'
import { explain, noConnection, SDK, show } from '../steps/support/base/errors.ts'
import { hide } from '../steps/support/base/secrets.ts'
import { isTooLong } from '../steps/support/base/too-long.ts'

const apiError = (status: number, body: unknown) =>
  SDK.APIError.generate(status, body as object, undefined, new Headers())

describe('isTooLong', () => {
  const LIMIT = 'prompt is too long: 213462 tokens > 200000 maximum'
  const anthropic = (message: string) => {
    return { type: 'error', error: { type: 'invalid_request_error', message } }
  }
  // biome-ignore format: a table
  const ERRORS: [isIt: boolean, from: string, status: number, body: unknown][] = [
    [true, 'Anthropic', 400, anthropic(LIMIT)],
    [true, 'Anthropic, with max_tokens', 400, anthropic('input length and `max_tokens` exceed context limit: 199759 + 8192 > 200000')],
    [true, 'Anthropic, in bytes', 413, { type: 'error', error: { type: 'request_too_large', message: 'Request exceeds the maximum size' } }],
    [true, 'a web server', 413, undefined],
    [true, 'OpenAI, by its code', 400, { error: { message: 'Too much.', code: 'context_length_exceeded' } }],
    [true, 'OpenAI', 400, { error: { message: 'Your input exceeds the context window of this model.' } }],
    [true, 'DeepSeek, vLLM', 400, { error: { message: "This model's maximum context length is 131072 tokens. However, you requested 131134 tokens" } }],
    [true, 'vLLM', 400, { message: 'The decoder prompt (length 40000) is longer than the maximum model length of 32768' }],
    [true, 'Kimi', 400, anthropic('Invalid request: Your request exceeded model token limit: 262144 (requested: 291351)')],
    [true, 'MiniMax', 400, anthropic('invalid params, context window exceeds limit (2013)')],
    [true, 'GLM', 400, { error: { code: '1261', message: 'Prompt exceeds max length' } }],
    [true, 'GLM, in Chinese', 400, { error: { code: '1261', message: 'Prompt 超长' } }],
    [true, 'Qwen', 400, { error: { message: '<400> InternalError.Algo.InvalidParameter: Range of input length should be [1, 129024]' } }],
    [true, 'Bedrock', 400, { message: 'Input is too long for requested model.' }],
    [true, 'Google', 400, { error: { message: 'The input token count (1196265) exceeds the maximum number of tokens allowed (1048575)' } }],
    [true, 'xAI', 400, { error: "This model's maximum prompt length is 131072 but the request contains 537812 tokens" }],
    [true, 'Groq', 400, { error: { message: 'Please reduce the length of the messages or completion.' } }],
    [true, 'Copilot', 400, { error: { message: 'prompt token count of 128933 exceeds the limit of 128000' } }],
    [true, 'llama.cpp', 400, { error: { type: 'exceed_context_size_error', message: 'the request exceeds the available context size' } }],
    [true, 'Ollama', 400, { error: 'prompt too long; exceeded max context length by 12 tokens' }],
    [true, 'LM Studio', 400, { error: 'The number of tokens to keep from the initial prompt is greater than the context length' }],
    [true, 'LiteLLM', 422, { detail: 'litellm.ContextWindowExceededError: too large' }],
    [false, 'too many at once', 429, anthropic('This request would exceed your rate limit of 30,000 input tokens per minute')],
    [false, 'a failure that quotes it', 500, anthropic(LIMIT)],
    [false, 'max_tokens', 400, anthropic('max_tokens: 64001 > 64000, which is the maximum allowed number of output tokens')],
    [false, 'a long name', 400, anthropic("tools.0.custom.name: String should match pattern '^[a-zA-Z0-9_-]{1,128}$'")],
    [false, 'a large image', 400, anthropic('messages.0.content.1.image: image exceeds 5 MB maximum')],
    [false, 'a missing result', 400, anthropic('`tool_use` ids were found without `tool_result` blocks')],
    [false, 'credit', 400, anthropic('Your credit balance is too low to access the Anthropic API.')],
  ]
  for (const [isIt, from, status, body] of ERRORS) {
    test(`${isIt ? 'is' : 'is not'}: ${from}`, () => {
      assert.equal(isTooLong(apiError(status, body)), isIt)
    })
  }
  test('is not: what is no error of an API', () => {
    for (const other of [new Error(LIMIT), undefined, LIMIT]) {
      assert.equal(isTooLong(other), false)
    }
  })
})

describe('a connection that fails', () => {
  const live = {
    model: 'm',
    baseURL: 'https://api.example',
    credential: { name: 'ANTHROPIC_API_KEY', value: 'x', source: '.env' },
  }
  const PROXY = 'http://user:pass-of-the-proxy@proxy.example'
  const NAMES = ['HTTPS_PROXY', 'HTTP_PROXY', 'ALL_PROXY', 'NODE_USE_ENV_PROXY']
  const said = (env: NodeJS.ProcessEnv) => {
    const kept = { ...process.env }
    for (const name of [...NAMES, ...NAMES.map((name) => name.toLowerCase())]) {
      delete process.env[name]
    }
    Object.assign(process.env, env)
    try {
      return explain(noConnection(new Error('ECONNREFUSED')), live)
    } finally {
      process.env = kept
    }
  }
  const FAILED = 'no connection: ECONNREFUSED (m at https://api.example)'
  const WHERE = '; is ANTHROPIC_BASE_URL right?'
  const ignored = (name: string) =>
    `; ${name} is set, but Node's fetch does not use it: ` +
    'it takes Node 24 with NODE_USE_ENV_PROXY=1 and HTTPS_PROXY'

  test('without a proxy it is the address', () => {
    assert.equal(said({}), FAILED + WHERE)
    assert.equal(said({ HTTPS_PROXY: '' }), FAILED + WHERE)
  })
  for (const name of ['HTTPS_PROXY', 'HTTP_PROXY', 'ALL_PROXY', 'https_proxy']) {
    test(`${name} is named, its value is not`, () => {
      assert.equal(said({ [name]: PROXY }), FAILED + ignored(name) + WHERE)
    })
  }
  test('where Node uses it, it is the address again', () => {
    const uses = process.allowedNodeEnvironmentFlags.has('--use-env-proxy')
    const env = { HTTPS_PROXY: PROXY, NODE_USE_ENV_PROXY: '1' }
    assert.equal(said(env), FAILED + (uses ? '' : ignored('HTTPS_PROXY')) + WHERE)
  })
})

describe('show', () => {
  test('cuts between characters', () => {
    for (let n = 195; n < 205; n++) {
      const text = `${'x'.repeat(n)}👩‍🚀 and so on`
      assert(show(text).isWellFormed())
      assert.match(show(text), /^x+(👩‍🚀( .*)?)?…$/)
    }
    assert.equal(show('a\ud83d'), 'a\ufffd')
  })
  test('is one line, and no longer than 200 columns', () => {
    assert.equal(show({ a: 1 }), '{"a":1}')
    assert.equal(show(' a\n\tb '), 'a b')
    assert.equal(show('中'.repeat(101)), `${'中'.repeat(99)}…`)
    for (const nothing of ['', ' ', undefined]) assert.equal(show(nothing), 'nothing')
  })
  test('leaves no half of a secret at the cut', () => {
    hide(['a-secret-of-the-test'])
    assert.doesNotMatch(show(`${'x'.repeat(190)} a-secret-of-the-test`), /secret/)
  })
  test('explains what the SDK does not send', () => {
    const error = new SDK.AnthropicError('Streaming is required for long requests.')
    assert.equal(explain(error), error.message)
    assert.equal(explain(new TypeError('x is not a function')), undefined)
  })
})
