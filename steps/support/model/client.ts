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
import type { Lane } from '../base/lane.ts'
import { isObject, type Json } from '../base/protocol.ts'
import { print } from '../terminal/screen.ts'
import { parsed, tidyReply } from './reply.ts'

const MAX_RETRIES = 2 // of the SDK's own
const MAX_WAIT = 60 // seconds that it may wait before

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
  const isLive = typeof source !== 'function'
  return new SDK.Anthropic({
    ...(isLive
      ? live(source)
      : { apiKey: 'offline', baseURL: 'http://offline.invalid', logLevel: 'off' }),
    maxRetries: MAX_RETRIES,
    middleware: [guard(watcher, isLive), ...(isLive ? [] : [source])],
  })
}

function live({ credential: { name, value }, baseURL }: Endpoint) {
  return {
    ...(name === 'ANTHROPIC_API_KEY' ? { apiKey: value } : { authToken: value }),
    baseURL,
    // Beside a bearer token, too: some compatible endpoints read only this header.
    defaultHeaders: isOther(baseURL) ? { 'x-api-key': value } : {},
    // Wherever a redirect leads, the key is not meant for that place.
    fetchOptions: { redirect: 'manual' as const },
  }
}

/**
 * Counts and logs what is sent, retries too, and hands the step a well-formed reply,
 * whatever the endpoint made of the protocol: steps hold no such code. A reply without
 * text or call comes without content.
 */
function guard({ laneOf, asking, answered }: Watcher, isLive: boolean): Middleware {
  return async (request, next, context) => {
    const body = context.options?.body as MessageCreateParams
    const lane = laneOf(body)
    try {
      asking(lane)
      const response = await next(request)
      if (response.status >= 300 && response.status < 400) {
        const to = response.headers.get('location') ?? 'nowhere'
        const how = 'set ANTHROPIC_BASE_URL to where the API is'
        throw new ReplyError(`the endpoint redirects to ${to}: ${how}`)
      }
      const text = await response.text().catch((cause) => {
        throw noConnection(cause) // a body that breaks off is a lost connection, too
      })
      if (!response.ok) {
        const { status, headers } = response
        const error = errorIn(text)
        lane?.event('error', 'api_error', { status, error })
        return retried(new Response(text, { status, headers }), request, error)
      }
      const reply = tidyReply(fromJson(text), body)
      const { stop_reason, content, usage } = reply
      if (!content.some(({ type }) => type === 'text' || type === 'tool_use')) {
        const dropped = content.length > 0 && { content }
        const cost = isLive && { usage }
        lane?.event('warn', 'empty_reply', { stop_reason, ...dropped, ...cost })
        reply.content = []
      }
      answered(lane, reply)
      return Response.json(reply)
    } catch (error) {
      const message = causeOf(error)
      if (request.signal?.aborted) lane?.event('warn', 'no_answer')
      else if (error instanceof ReplyError) lane?.event('error', 'bad_reply', { message })
      else if (error instanceof RunError) lane?.event('warn', 'not_sent', { message })
      else lane?.event('error', 'no_connection', { message })
      throw error
    }
  }
}

/** What the body of an error holds, whichever protocol it comes from. */
function errorIn(text: string): { type?: string; message?: unknown } {
  const body = parsed(text) as Json | undefined
  const error = body?.error ?? body ?? firstLine(text)
  return isObject(error) ? error : { message: String(error) }
}

/** Says that the SDK will try again; it does not where it was to wait for too long. */
function retried(response: Response, request: APIRequest, error: Json): Response {
  const { status, headers } = response
  const tries = Number(request.headers.get('x-stainless-retry-count'))
  const isPassing = status === 408 || status === 409 || status === 429 || status >= 500
  const should = headers.get('x-should-retry') ?? String(isPassing)
  if (should !== 'true' || tries >= MAX_RETRIES) return response
  if (waitIn(headers) > MAX_WAIT) headers.set('x-should-retry', 'false')
  else print(`${status}: ${show(error.message ?? error)}; trying again`, 'yellow')
  return response
}

function fromJson(text: string): unknown {
  const value = parsed(text)
  if (value !== undefined) return value
  const said = /^\s*</.test(text) ? 'HTML' : `text (${show(text)})`
  const what = text.trim() === '' ? 'nothing' : said
  throw new ReplyError(`the endpoint answered ${what}: is ANTHROPIC_BASE_URL right?`)
}
