/** The SDK's client, and the middleware that stands between it and the endpoint. */
import type Anthropic from '@anthropic-ai/sdk'
import type { APIRequest, Middleware } from '@anthropic-ai/sdk'
import type { Message, MessageCreateParams } from '@anthropic-ai/sdk/resources/messages'
import {
  causeOf,
  type Endpoint,
  firstLine,
  isOther,
  noConnection,
  ReplyError,
  RunError,
  SDK,
  show,
  waitIn,
} from '../base/errors.ts'
import type { Lane } from '../base/lane-file.ts'
import { print } from '../terminal/screen.ts'
import { tidyReply } from './reply.ts'

/** How often the SDK tries again. */
const MAX_RETRIES = 2
/** For how many seconds it may wait before. */
const MAX_WAIT = 60

export type Watcher = {
  /** The lane that a request belongs to, if any of its messages was logged. */
  laneOf: (body: MessageCreateParams) => Lane | undefined
  /** Called before each request; throws a RunError if there were too many. */
  asking: (lane: Lane | undefined) => void
  /** Called with each well-formed reply. */
  answered: (lane: Lane | undefined, reply: Message) => void
}

/** A client for a real endpoint, or one that `replay` answers without any network. */
export function createClient(source: Endpoint | Middleware, watcher: Watcher): Anthropic {
  if (typeof source === 'function') {
    return new SDK.Anthropic({
      apiKey: 'offline',
      baseURL: 'http://offline.invalid',
      logLevel: 'off',
      maxRetries: MAX_RETRIES,
      middleware: [guard(watcher), source],
    })
  }
  const { credential, baseURL } = source
  const isKey = credential.name === 'ANTHROPIC_API_KEY'
  return new SDK.Anthropic({
    ...(isKey ? { apiKey: credential.value } : { authToken: credential.value }),
    baseURL,
    // Beside a bearer token, too: some compatible endpoints read only this header.
    defaultHeaders: isOther(baseURL) ? { 'x-api-key': credential.value } : {},
    // Wherever a redirect leads, the key is not meant for that place.
    fetchOptions: { redirect: 'manual' },
    maxRetries: MAX_RETRIES,
    middleware: [guard(watcher)],
  })
}

/**
 * Counts and logs what is sent, retries too, and hands the step a well-formed reply,
 * whatever the endpoint made of the protocol: steps hold no such code.
 */
function guard({ laneOf, asking, answered }: Watcher): Middleware {
  return async (request, next, context) => {
    const body = context.options?.body as MessageCreateParams
    const lane = laneOf(body)
    let paused: Message | undefined
    const said = () => paused && { content: paused.content }
    try {
      for (let asked = request; ; ) {
        asking(lane)
        const response = await next(asked)
        if (response.status >= 300 && response.status < 400) throw redirected(response)
        if (!response.ok) {
          const error = await apiError(response.clone())
          lane?.event('error', 'api_error', { ...error, ...said() })
          return retried(response, request, error)
        }
        const reply = tidyReply(await json(response), body, paused)
        if (reply.stop_reason !== 'pause_turn') {
          answered(lane, reply)
          return toResponse(reply)
        }
        // A paused turn goes on when it is sent back; to the step it is one reply.
        paused = reply
        const messages = [
          ...body.messages,
          { role: 'assistant', content: paused.content },
        ]
        asked = { ...request, body: JSON.stringify({ ...body, messages }) }
      }
    } catch (error) {
      const message = causeOf(error)
      if (request.signal?.aborted) lane?.event('warn', 'no_answer', said())
      else if (error instanceof ReplyError) {
        const { content } = error.content ? error : (paused ?? {})
        lane?.event('error', 'bad_reply', { message, ...(content && { content }) })
      } else if (error instanceof RunError) {
        lane?.event('warn', 'not_sent', { message, ...said() })
      } else lane?.event('error', 'no_connection', { message, ...said() })
      throw error
    }
  }
}

/** What is known already need not go through a stream once more. */
function toResponse(reply: Message): Response {
  const headers = { 'content-type': 'application/json' }
  return Object.assign(new Response(null, { headers }), { json: async () => reply })
}

type Failure = { status: number; error: { type?: string; message?: string } }

async function apiError(response: Response): Promise<Failure> {
  const text = await bodyOf(response)
  return { status: response.status, error: errorIn(text) ?? { message: firstLine(text) } }
}

function errorIn(text: string): Failure['error'] | undefined {
  try {
    const body = JSON.parse(text)
    const error = body?.error ?? body
    return typeof error === 'object' ? error : { message: String(error) }
  } catch {
    return undefined
  }
}

/** Says that the SDK will try again; it does not where it was to wait for too long. */
function retried(response: Response, request: APIRequest, { status, error }: Failure) {
  const tries = Number(request.headers.get('x-stainless-retry-count'))
  const isPassing = status === 408 || status === 409 || status === 429 || status >= 500
  const should = response.headers.get('x-should-retry') ?? String(isPassing)
  if (should !== 'true' || tries >= MAX_RETRIES) return response
  if (waitIn(response.headers) <= MAX_WAIT) {
    print(`${status}: ${error.message ?? show(error)}; trying again`, 'yellow')
    return response
  }
  const headers = new Headers(response.headers)
  headers.set('x-should-retry', 'false')
  return new Response(response.body, { status, headers })
}

function redirected({ headers }: Response): ReplyError {
  const to = headers.get('location') ?? 'nowhere'
  return new ReplyError(
    `the endpoint redirects to ${to}: set ANTHROPIC_BASE_URL to where the API is`,
  )
}

async function json(response: Response): Promise<unknown> {
  const text = await bodyOf(response)
  try {
    return JSON.parse(text)
  } catch {
    const said = /^\s*</.test(text) ? 'HTML' : `text (${show(text)})`
    const what = text.trim() === '' ? 'nothing' : said
    throw new ReplyError(`the endpoint answered ${what} instead of JSON`)
  }
}

/** A body that breaks off is a lost connection, too. */
function bodyOf(response: Response): Promise<string> {
  return response.text().catch((cause) => {
    throw noConnection(cause)
  })
}
