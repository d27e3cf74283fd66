/** The SDK's client, and the middleware that stands between it and the endpoint. */
import { createRequire } from 'node:module'
import type Anthropic from '@anthropic-ai/sdk'
import type { Middleware } from '@anthropic-ai/sdk'
import type { Message, MessageCreateParams } from '@anthropic-ai/sdk/resources/messages'
import type { Lane } from './log.ts'
import { ReplyError, tidyReply } from './reply.ts'
import type { Settings } from './settings.ts'
import { RunError } from './terminal.ts'

// Loaded this way the SDK takes half as long; steps need only its types.
const SDK: typeof import('@anthropic-ai/sdk') = createRequire(import.meta.url)(
  '@anthropic-ai/sdk',
)

export type Watcher = {
  /** The lane that a request belongs to, if any of its messages was logged. */
  laneOf: (body: MessageCreateParams) => Lane | undefined
  /** Called before each request; throws a RunError if there were too many. */
  asking: (lane: Lane | undefined) => void
  /** Called with each well-formed reply. */
  answered: (lane: Lane | undefined, reply: Message) => void
}

/** A client for a real endpoint, or one that `replay` answers without any network. */
export function createClient(
  source: Settings['live'] | Middleware,
  watcher: Watcher,
): Anthropic {
  if (typeof source === 'function') {
    return new SDK.Anthropic({
      apiKey: 'offline',
      baseURL: 'http://offline.invalid',
      logLevel: 'off',
      middleware: [guard(watcher), source],
    })
  }
  const { credential, baseURL } = source as NonNullable<Settings['live']>
  const isKey = credential.name === 'ANTHROPIC_API_KEY'
  // The SDK sends a bearer token; some compatible endpoints read only this header.
  return new SDK.Anthropic({
    ...(isKey ? { apiKey: credential.value } : { authToken: credential.value }),
    baseURL,
    defaultHeaders: isOther(baseURL) ? { 'x-api-key': credential.value } : {},
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
    const paused: Message['content'] = []
    try {
      for (let asked = request; ; ) {
        asking(lane)
        const response = await next(asked)
        if (!response.ok) {
          lane?.event('error', 'api_error', await apiError(response.clone()))
          return response
        }
        const reply = tidyReply(await json(response), body)
        reply.content.unshift(...paused.splice(0))
        if (reply.stop_reason !== 'pause_turn') {
          answered(lane, reply)
          return toResponse(reply)
        }
        // A paused turn goes on when it is sent back; to the step it is one reply.
        paused.push(...reply.content)
        const messages = [...body.messages, { role: 'assistant', content: paused }]
        asked = { ...request, body: JSON.stringify({ ...body, messages }) }
      }
    } catch (error) {
      if (request.signal?.aborted) lane?.event('warn', 'no_answer')
      else if (error instanceof ReplyError) {
        lane?.event('error', 'bad_reply', { message: error.message })
      } else if (error instanceof RunError) {
        lane?.event('warn', 'not_sent', { message: error.message })
      } else lane?.event('error', 'no_connection', { message: causeOf(error) })
      throw error
    }
  }
}

/** What is known already need not go through a stream once more. */
function toResponse(reply: Message): Response {
  const headers = { 'content-type': 'application/json' }
  return Object.assign(new Response(null, { headers }), { json: async () => reply })
}

async function apiError(response: Response) {
  const text = await bodyOf(response)
  return { status: response.status, error: errorIn(text) ?? { message: firstLine(text) } }
}

function errorIn(text: string): { type?: string; message?: string } | undefined {
  try {
    const body = JSON.parse(text)
    const error = body?.error ?? body
    return typeof error === 'object' ? error : { message: String(error) }
  } catch {
    return undefined
  }
}

async function json(response: Response): Promise<unknown> {
  const text = await bodyOf(response)
  try {
    return JSON.parse(text)
  } catch {
    const what = /^\s*</.test(text) ? 'HTML' : text.trim() ? 'text' : 'nothing'
    throw new ReplyError(`the endpoint answered ${what} instead of JSON`)
  }
}

/** A body that breaks off is a lost connection, too. */
function bodyOf(response: Response): Promise<string> {
  return response.text().catch((cause) => {
    throw noConnection(cause)
  })
}

/** An error after which the SDK tries again. */
export const noConnection = (cause: Error) => new SDK.APIConnectionError({ cause })

/** What went wrong with a request, in one line; undefined for any other error. */
export function explain(error: unknown, live: Settings['live']): string | undefined {
  const at = live ? ` (${live.model} at ${live.baseURL})` : ''
  if (error instanceof ReplyError) return `${error.message}${at}`
  if (error instanceof SDK.APIConnectionTimeoutError) return `no answer in time${at}`
  if (error instanceof SDK.APIUserAbortError) return `stopped before an answer came${at}`
  if (error instanceof SDK.APIConnectionError) {
    return `no connection: ${causeOf(error)}${at}; is ANTHROPIC_BASE_URL right?`
  }
  if (error instanceof SDK.APIError) {
    const body = error.error as
      | { error?: { message?: string }; message?: string }
      | undefined
    const said = body?.error?.message ?? body?.message ?? firstLine(error.message)
    const kind = [error.status, error.type].filter(Boolean).join(' ')
    return `${kind}: ${said}${at}${advice(error.status, live)}`
  }
  if (
    error instanceof SDK.AnthropicError &&
    error.message.startsWith('Streaming is required')
  ) {
    return 'max_tokens is too large for a request without streaming: 21333 is the most'
  }
  return undefined
}

function advice(status: number | undefined, live: Settings['live']): string {
  if (!live) return ''
  const { name, source } = live.credential
  const other = status === 401 && name === 'ANTHROPIC_API_KEY' && isOther(live.baseURL)
  const bearer = other ? ', or call it ANTHROPIC_AUTH_TOKEN' : ''
  if (status === 401 || status === 403) return `; check ${name} in ${source}${bearer}`
  if (status === 404) return '; check MODEL_ID and ANTHROPIC_BASE_URL'
  if (status === 429 || (status ?? 0) >= 500) return '; try again later'
  return ''
}

const isOther = (baseURL: string) => new URL(baseURL).hostname !== 'api.anthropic.com'

function causeOf(error: unknown): string {
  const { cause, code, message } = error as NodeJS.ErrnoException & { cause?: unknown }
  if (cause) return causeOf(cause)
  return code && !message.includes(code) ? `${code} ${message}`.trim() : message
}

function firstLine(text: string): string {
  if (/<html|<!doctype/i.test(text)) return 'HTML instead of JSON'
  return text.trim().split('\n')[0].slice(0, 300) || 'no explanation'
}
