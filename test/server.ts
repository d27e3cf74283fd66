/** A server on loopback that speaks the Messages API, keeps its rules, and can break them. */
import {
  createServer,
  type IncomingHttpHeaders,
  type IncomingMessage,
  type ServerResponse,
} from 'node:http'
import type { AddressInfo } from 'node:net'
import { text as readText } from 'node:stream/consumers'
import { requestError } from '../steps/support/base/protocol.ts'
import type { Json } from './kit.ts'

export * from './kit.ts'

/** One POST to /v1/messages; `at` is its time of arrival in ms (`performance.now()`). */
export type Received = { headers: IncomingHttpHeaders; body: Json; at: number }

/** A request that was answered with an error because it, or the script, was wrong. */
export type Refused = { status: number; message: string; method: string; path: string }

/** Writes one answer; made by the helpers below. `n` counts accepted requests from 0. */
export type Answer = (response: ServerResponse, body: Json, n: number) => void

export type Handler = (body: Json, n: number) => Answer | Promise<Answer>

export type Server = {
  /** The base URL, without a slash at its end. */
  url: string
  requests: Received[]
  /** Expect it to be empty: `assert.deepEqual(server.refused, [])`. */
  refused: Refused[]
  close: () => Promise<void>
}

type Options = { auth?: 'any' | 'x-api-key' | 'bearer'; key?: string }

/**
 * Starts the server on a free port of 127.0.0.1. Only what the API itself would accept
 * reaches the script: POST /v1/messages exactly, with credentials, `anthropic-version`
 * and a body that breaks no rule. The rest gets the API's own error and stands in
 * `refused`, as does a request beyond the script's end (500, marked not to be retried).
 *
 * @param script the answers in order, or a function that chooses one per request
 * @param options which credential is needed (by default either) and its value, if any
 */
export async function startServer(
  script: Answer[] | Handler,
  options: Options = {},
): Promise<Server> {
  const requests: Received[] = []
  const refused: Refused[] = []
  let accepted = 0

  const server = createServer(async (request, response) => {
    const at = performance.now()
    const refuse = (status: number, type: string, message: string) => {
      const { method = '', url = '' } = request
      refused.push({ status, message, method, path: url })
      fail(status, type, message, { 'x-should-retry': 'false' })(response, {}, accepted)
    }
    try {
      const raw = await readText(request)
      if (request.url !== '/v1/messages')
        return refuse(404, 'not_found_error', 'Not Found')
      if (request.method !== 'POST') {
        return refuse(405, 'invalid_request_error', 'Method Not Allowed')
      }
      const body = parsed(raw)
      requests.push({ headers: request.headers, body, at })
      const denied = authError(request, options)
      if (denied) return refuse(401, 'authentication_error', denied)
      const wrong = headerError(request) ?? bodyError(body)
      if (wrong) return refuse(400, 'invalid_request_error', wrong)

      const n = accepted++
      const answer = Array.isArray(script) ? script[n] : await script(body, n)
      if (answer) answer(response, body, n)
      else refuse(500, 'api_error', `the script has no answer ${n + 1}`)
    } catch (error) {
      // A client that leaves in the middle of its request is no fault of the script.
      if (!request.complete) return response.destroy()
      refuse(500, 'api_error', `the script failed: ${error}`)
    }
  })
  await new Promise<void>((done) => server.listen(0, '127.0.0.1', done))

  const close = async () => {
    server.closeAllConnections()
    if (server.listening) await new Promise((done) => server.close(done))
  }
  const { port } = server.address() as AddressInfo
  return { url: `http://127.0.0.1:${port}`, requests, refused, close }
}

function authError({ headers }: IncomingMessage, { auth = 'any', key }: Options) {
  const bearer = headers.authorization?.match(/^Bearer (.+)$/)?.[1]
  const given = {
    'x-api-key': [headers['x-api-key']],
    bearer: [bearer],
    any: [headers['x-api-key'], bearer],
  }[auth].filter((credential) => credential !== undefined)
  if (given.length === 0) {
    return auth === 'bearer'
      ? 'Authorization header is required'
      : 'x-api-key header is required'
  }
  if (key === undefined || given.includes(key)) return undefined
  return auth === 'bearer' ? 'Invalid bearer token' : 'invalid x-api-key'
}

function headerError({ headers }: IncomingMessage) {
  const missing = headers['anthropic-version'] === undefined
  return missing ? 'anthropic-version: header is required' : undefined
}

function bodyError(body: Json) {
  if (typeof body === 'string') return 'The request body is not valid JSON'
  return body.stream ? 'stream: this server does not stream' : requestError(body)
}

/** The body, or the text itself where it is no JSON. */
function parsed(text: string) {
  try {
    return JSON.parse(text)
  } catch {
    return text
  }
}

/** Fields of a reply that a test sets itself: `stop_reason`, `usage`, `model`, … */
type Fields = Json

/** A well-formed reply with these content blocks. */
export function reply(content: Json[], fields: Fields = {}): Answer {
  return (response, body, n) => {
    const called = content.some((block) => block.type === 'tool_use')
    const message = {
      id: `msg_${n}`,
      type: 'message',
      role: 'assistant',
      model: body.model,
      content: content.map((block, k) =>
        block.type === 'tool_use' ? { id: `toolu_${n}_${k}`, ...block } : block,
      ),
      stop_reason: called ? 'tool_use' : 'end_turn',
      stop_sequence: null,
      usage: { input_tokens: 10, output_tokens: 5 },
      ...fields,
    }
    raw(200, message)(response, body, n)
  }
}

/** A reply that is one text. */
export function text(words: string, fields?: Fields): Answer {
  return reply([{ type: 'text', text: words }], fields)
}

/**
 * A reply that calls tools. An argument without a `name` holds fields of the reply
 * instead, and may hold `text`, which goes before the calls.
 */
export function calls(...items: Json[]): Answer {
  const { text: words, ...fields }: Json = Object.assign(
    {},
    ...items.filter((item) => !item.name),
  )
  const blocks = items
    .filter((item) => item.name)
    .map((call) => ({ type: 'tool_use', input: {}, ...call }))
  return reply(words ? [{ type: 'text', text: words }, ...blocks] : blocks, fields)
}

/** Any bytes; an object is sent as JSON. */
export function raw(
  status: number,
  body: string | Buffer | object,
  headers: Record<string, string> = {},
): Answer {
  const bytes = typeof body === 'string' || Buffer.isBuffer(body)
  return (response) => {
    response.writeHead(status, { 'content-type': 'application/json', ...headers })
    response.end(bytes ? body : JSON.stringify(body))
  }
}

/** An error as the API sends it. */
export function fail(
  status: number,
  type: string,
  message: string,
  headers?: Record<string, string>,
): Answer {
  return raw(status, { type: 'error', error: { type, message } }, headers)
}

/** No answer until the client leaves or the server is closed. */
export function stall(): Answer {
  return () => {}
}

/** Cuts the connection, before any answer or after these first bytes of one. */
export function hangUp(part?: string): Answer {
  return (response) => {
    const cut = () => {
      response.socket?.destroy()
    }
    if (part === undefined) return cut()
    const headers = { 'content-type': 'application/json', 'content-length': '100000' }
    response.writeHead(200, headers)
    response.write(part, cut)
  }
}

/** The same answer, later. */
export function wait(ms: number, answer: Answer): Answer {
  return (response, body, n) => {
    const timer = setTimeout(() => answer(response, body, n), ms)
    response.once('close', () => clearTimeout(timer))
  }
}
