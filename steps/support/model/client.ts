/** The SDK's client, and the middleware that stands between it and the endpoint. */
import type { Middleware } from '@anthropic-ai/sdk'
import type { MessageCreateParams } from '@anthropic-ai/sdk/resources'
import {
  causeOf,
  type Endpoint,
  firstLine,
  isOther,
  noConnection,
  ReplyError,
  RunError,
  SDK,
  waitIn,
} from '../base/errors.ts'
import type { Lane } from '../base/lane.ts'
import { parseJson } from '../base/lane-file.ts'
import { isObject, type Json } from '../base/protocol.ts'
import { waitFor } from '../terminal/screen.ts'
import { tidyReply } from './reply.ts'

const MAX_WAIT = 60 // seconds that the SDK may wait before it tries again

const OFFLINE = {
  apiKey: 'offline',
  baseURL: 'http://offline.invalid',
  logLevel: 'off',
} as const

export type Watcher = {
  laneOf: (messages: MessageCreateParams['messages']) => Lane
  /** Called before each request; throws a RunError if there were too many. */
  asking: (lane: Lane) => void
}

/** A client for a real endpoint, or one that `replay` answers without any network. */
export function createClient(source: Endpoint | Middleware, watcher: Watcher) {
  const isLive = typeof source !== 'function'
  return new SDK.Anthropic({
    ...(isLive ? live(source) : OFFLINE),
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
    fetchOptions: { redirect: 'error' as const },
  }
}

/**
 * Counts and logs what is sent, retries too, and hands the step a well-formed reply,
 * whatever the endpoint made of the protocol: steps hold no such code. A reply without
 * text or call comes without content.
 */
function guard({ laneOf, asking }: Watcher, isLive: boolean): Middleware {
  return async (request, next, context) => {
    const body = context.options?.body as MessageCreateParams
    const lane = laneOf(body.messages)
    try {
      asking(lane)
      const response = await next(request)
      const text = await response.text().catch((cause) => {
        throw noConnection(cause) // a body that breaks off is a lost connection, too
      })
      if (!response.ok) {
        const { status, headers } = response
        lane.event('error', 'api_error', { status, error: errorIn(text) })
        // Else the SDK would wait for as long as it is told to.
        const failed = new Response(text, { status, headers })
        if (waitIn(headers) > MAX_WAIT) failed.headers.set('x-should-retry', 'false')
        return failed
      }
      const reply = tidyReply(fromJson(text), lane.ids)
      const { stop_reason, content, usage } = reply
      if (!content.some(({ type }) => type === 'text' || type === 'tool_use')) {
        const dropped = content.length > 0 && { content }
        const cost = isLive && { usage }
        lane.event('warn', 'empty_reply', { stop_reason, ...dropped, ...cost })
        reply.content = []
      }
      waitFor('')
      lane.reply = reply
      return Response.json(reply)
    } catch (error) {
      const message = causeOf(error)
      if (request.signal?.aborted) lane.event('warn', 'no_answer')
      else if (error instanceof ReplyError) lane.event('error', 'bad_reply', { message })
      else if (error instanceof RunError) lane.event('warn', 'not_sent', { message })
      else lane.event('error', 'no_connection', { message })
      throw error
    }
  }
}

/** What the body of an error holds, whichever protocol it comes from. */
function errorIn(text: string): { type?: string; message?: unknown } {
  const body = parseJson(text) as Json | undefined
  const error = body?.error ?? body ?? firstLine(text)
  return isObject(error) ? error : { message: String(error) }
}

function fromJson(text: string): unknown {
  const value = parseJson(text)
  if (value !== undefined) return value
  const said = `the endpoint answered ${firstLine(text)}`
  throw new ReplyError(`${said}: is ANTHROPIC_BASE_URL right?`)
}
