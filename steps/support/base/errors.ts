/** What can go wrong with a run, and how it is said in one line. */
import { createRequire } from 'node:module'
import type { APIError } from '@anthropic-ai/sdk'
import { isText, type Json } from './protocol.ts'
import { redact } from './secrets.ts'

// Loaded this way the SDK takes half as long; steps need only its types.
export const SDK: typeof import('@anthropic-ai/sdk') = createRequire(import.meta.url)(
  '@anthropic-ai/sdk',
)

/** Where requests go, and with what. */
export type Endpoint = {
  model: string
  baseURL: string
  credential: { name: string; value: string; source: string }
}

export const HOW_TO_GO_LIVE =
  'To ask a real model, copy .env.example to .env and set ANTHROPIC_API_KEY in it.'

/** An error whose message says it all: no stack trace would help the reader. */
export class RunError extends Error {}

/** Why a reply cannot be made well formed, in one sentence; and what it held. */
export class ReplyError extends Error {
  readonly content?: Json[]
  constructor(message: string, content?: Json[]) {
    super(message)
    this.content = content?.length ? content : undefined
  }
}

/** The beginning of a value, in one line; no secret is cut to an unknown half. */
export function show(value: unknown): string {
  const text = redact(isText(value) ? value : (JSON.stringify(value) ?? 'nothing'))
  return text.trim().slice(0, 200).replace(/\s+/g, ' ') || 'nothing'
}

/** An error after which the SDK tries again. */
export const noConnection = (cause: Error) => new SDK.APIConnectionError({ cause })

const WHERE = '; is ANTHROPIC_BASE_URL right?'

/** What went wrong with a request, in one line; undefined for any other error. */
export function explain(error: unknown, live?: Endpoint): string | undefined {
  const at = live ? ` (${live.model} at ${live.baseURL})` : ''
  if (error instanceof ReplyError) {
    const isElsewhere = live && error.message.endsWith('instead of JSON')
    return `${error.message}${at}${isElsewhere ? WHERE : ''}`
  }
  if (error instanceof SDK.APIConnectionTimeoutError) return `no answer in time${at}`
  if (error instanceof SDK.APIUserAbortError) return `stopped before an answer came${at}`
  if (error instanceof SDK.APIConnectionError) {
    return `no connection: ${causeOf(error)}${at}${live ? WHERE : ''}`
  }
  if (error instanceof SDK.APIError) {
    const said = firstLine(messageIn(error.error) ?? error.message.replace(/^\d+ /, ''))
    const kind = [error.status, error.type].filter(Boolean).join(' ')
    return `${kind}: ${said}${at}${advice(error, live)}`
  }
  if (
    error instanceof SDK.AnthropicError &&
    error.message.startsWith('Streaming is required')
  ) {
    return 'max_tokens is too large for a request without streaming: 21333 is the most'
  }
  return undefined
}

/** What the body of an error says, whichever protocol it comes from. */
// biome-ignore lint/suspicious/noExplicitAny: whatever the endpoint sends
function messageIn(body: any): string | undefined {
  const places = [
    body?.error?.message,
    body?.error,
    body?.message,
    body?.detail,
    body?.msg,
  ]
  return places.find((said) => typeof said === 'string')
}

function advice({ status, headers }: APIError, live?: Endpoint): string {
  if (!live) return ''
  const after = waitIn(headers)
  const { name, source } = live.credential
  const isKey = name === 'ANTHROPIC_API_KEY'
  const maybeToken = status === 401 && isKey && isOther(live.baseURL)
  const or = maybeToken ? ', or call it ANTHROPIC_AUTH_TOKEN' : ''
  if (status === 401 || status === 403) return `; check ${name} in ${source}${or}`
  if (status === 404) return '; check MODEL_ID and ANTHROPIC_BASE_URL'
  if (status === 429 || (status ?? 0) >= 500)
    return `; try again ${after > 0 ? `in ${after} s` : 'later'}`
  return ''
}

export const isOther = (baseURL: string) =>
  new URL(baseURL).hostname !== 'api.anthropic.com'

export function causeOf(error: unknown): string {
  const { cause, code, message } = error as NodeJS.ErrnoException & { cause?: unknown }
  if (cause) return causeOf(cause)
  return code && !message.includes(code) ? `${code} ${message}`.trim() : message
}

export function firstLine(text: string): string {
  if (/<html|<!doctype/i.test(text)) return 'HTML instead of JSON'
  return redact(text).trim().replace(/\s+/g, ' ').slice(0, 300) || 'no explanation'
}

/** The seconds after which an endpoint wants to be asked again; 0 if it does not say. */
export function waitIn(headers?: Headers): number {
  const after = headers?.get('retry-after') ?? ''
  const given = Number(headers?.get('retry-after-ms')) || Number(after) * 1000
  const ms = given || Date.parse(after) - Date.now()
  return Math.max(0, Math.round(ms / 1000)) || 0
}

export function isTooLong(error: unknown): boolean {
  return /prompt is too long/.test(String((error as Error)?.message))
}
