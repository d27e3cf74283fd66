/** What can go wrong with a run, and how it is said in one line. */
import { createRequire } from 'node:module'
import type { APIError } from '@anthropic-ai/sdk'
import { isText } from './protocol.ts'
import { redact } from './secrets.ts'
import { fit } from './width.ts'

// Loaded this way the SDK takes half as long; steps need only its types.
export const SDK: typeof import('@anthropic-ai/sdk') = createRequire(import.meta.url)(
  '@anthropic-ai/sdk',
)

export type Endpoint = {
  model: string
  baseURL: string
  credential: { name: string; value: string; source: string }
}

export const GO_LIVE =
  'To ask a real model, copy .env.example to .env and set ANTHROPIC_API_KEY in it.'

/** An error whose message says it all: no stack trace would help the reader. */
export class RunError extends Error {}

/** Why a reply cannot be made well formed, in one sentence. */
export class ReplyError extends Error {}

/** A value's first `width` columns, in one line; no secret is cut to an unknown half. */
export function show(value: unknown, width = 200): string {
  const text = redact(isText(value) ? value : (JSON.stringify(value) ?? ''))
  return fit(text.trim().replace(/\s+/g, ' '), width) || 'nothing'
}

/** An error after which the SDK tries again. */
export const noConnection = (cause: Error) => new SDK.APIConnectionError({ cause })

/** What went wrong with a request, in one line; undefined for any other error. */
export function explain(error: unknown, live?: Endpoint): string | undefined {
  const at = live ? ` (${live.model} at ${live.baseURL})` : ''
  if (error instanceof ReplyError) return `${error.message}${at}`
  if (error instanceof SDK.APIUserAbortError) return `stopped before an answer came${at}`
  if (error instanceof SDK.APIConnectionError) {
    const where = '; is ANTHROPIC_BASE_URL right?'
    return `no connection: ${causeOf(error)}${at}${live ? proxyAdvice() + where : ''}`
  }
  if (error instanceof SDK.APIError) {
    const said = saidIn(error.error) ?? error.message.replace(/^\d+ /, '')
    const kind = [error.status, error.type].filter(Boolean).join(' ')
    return `${kind}: ${firstLine(said)}${at}${advice(error, live)}`
  }
  // What the SDK does not even send.
  if (error instanceof SDK.AnthropicError) return error.message
  return undefined
}

/** What the body of an error says, whichever protocol it comes from. */
// biome-ignore lint/suspicious/noExplicitAny: whatever the endpoint sends
function saidIn(body: any): string | undefined {
  const { error, message, detail, msg } = body ?? {}
  return [error?.message, error, message, detail, msg].find(isText)
}

function advice({ status = 0, headers }: APIError, live?: Endpoint): string {
  if (!live) return ''
  const after = waitIn(headers)
  const { name, source } = live.credential
  const maybeToken = name === 'ANTHROPIC_API_KEY' && isOther(live.baseURL)
  const or = status === 401 && maybeToken ? ', or call it ANTHROPIC_AUTH_TOKEN' : ''
  if (status === 401 || status === 403) return `; check ${name} in ${source}${or}`
  if (status === 404) return '; check MODEL_ID and ANTHROPIC_BASE_URL'
  if (status !== 429 && status < 500) return ''
  return `; try again ${after > 0 ? `in ${after} s` : 'later'}`
}

/** Names a proxy that Node leaves aside; not its value, which may hold a password. */
function proxyAdvice(): string {
  const { env, allowedNodeEnvironmentFlags: flags } = process
  if (env.NODE_USE_ENV_PROXY === '1' && flags.has('--use-env-proxy')) return ''
  const isProxy = (name: string) => /^(https?|all)_proxy$/i.test(name) && env[name]
  const set = Object.keys(env).find(isProxy)
  const how = 'it takes Node 24 with NODE_USE_ENV_PROXY=1 and HTTPS_PROXY'
  return set ? `; ${set} is set, but Node's fetch does not use it: ${how}` : ''
}

export const isOther = (url: string) => new URL(url).hostname !== 'api.anthropic.com'

export function causeOf(error: unknown): string {
  const { cause, code, message } = error as NodeJS.ErrnoException & { cause?: unknown }
  if (cause) return causeOf(cause)
  return code && !message.includes(code) ? `${code} ${message}`.trim() : message
}

export function firstLine(text: string): string {
  return /<html|<!doctype/i.test(text) ? 'HTML instead of JSON' : show(text, 300)
}

/** The seconds after which an endpoint wants to be asked again; 0 if it does not say. */
export function waitIn(headers?: Headers): number {
  const ms = Number(headers?.get('retry-after-ms'))
  return Math.round(ms / 1000 || Number(headers?.get('retry-after'))) || 0
}
