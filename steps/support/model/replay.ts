/** The offline model: SDK middleware that answers from recorded lanes. */
import { isDeepStrictEqual } from 'node:util'
import type { Middleware } from '@anthropic-ai/sdk'
import type {
  MessageCreateParams,
  MessageParam,
} from '@anthropic-ai/sdk/resources/messages'
import {
  HOW_TO_GO_LIVE,
  noConnection,
  ReplyError,
  RunError,
  show,
} from '../base/errors.ts'
import {
  isAnswer,
  type Lane,
  type LaneFile,
  type LaneLine,
  renumberIds,
  walk,
} from '../base/lane-file.ts'
import { requestError, toBlocks } from '../base/protocol.ts'
import { describeTools } from '../tools/bash.ts'
import type { Tool } from '../tools/tool.ts'

/** An array without a lane: its text stays as it is. */
const UNOPENED: Pick<Lane, 'clean' | 'restore'> = {
  clean: (value) => value,
  restore: (value) => value,
}

/** The conversation has left the recording: there is nothing that could answer it. */
export class NotRecordedError extends RunError {}

export type ReplayOptions = {
  /** The recording's folder, as the reader knows it. */
  folder: string
  lanes: LaneFile[]
  /** The lane that a request belongs to, if its array was opened. */
  laneOf: (body: MessageCreateParams) => Lane | undefined
  /** Tells the reader something, in one line. */
  tell: (line: string) => void
}

/** A recorded lane while it is replayed: `next` is the answer that comes next. */
type Track = {
  lane: LaneFile
  answers: Answer[]
  next: number
  noted: boolean
  used?: boolean
}
type Answer = {
  line: LaneLine
  history: MessageParam[]
  position: number
  retried: boolean
}

/**
 * Answers `POST /v1/messages` from recorded lanes, never from a network. Each goes to
 * the lane whose user prompts and assistant turns equal its own; of several, to the
 * earliest that is still free. Tool results may differ: the first difference in a lane is
 * told. What the real API refuses is refused, with its status and wording.
 *
 * @throws {NotRecordedError} from then on, once a conversation has left the recording
 */
export function replay({ folder, lanes, laneOf, tell }: ReplayOptions): Middleware {
  const tracks = lanes.map(startTrack)
  const taken = new WeakMap<MessageParam[], Track>()
  let lost: string | undefined

  return async (request, _next, context) => {
    const body = context.options?.body as MessageCreateParams
    const refusal = requestError(body)
    if (refusal)
      return errorResponse(400, { type: 'invalid_request_error', message: refusal })
    const { clean, restore } = laneOf(body) ?? UNOPENED
    const messages = normalize(body.messages, clean)
    const key = body.messages
    const own = taken.get(key)
    const fit = (track: Track) => fits(track, messages)
    const track = own
      ? [own].find(fit)
      : (tracks.find((t) => !t.used && fit(t)) ?? tracks.find(fit))
    if (!track) {
      const error = new NotRecordedError(whyLost(folder, tracks, messages, own))
      lost ??= error.message.split('\n')[0]
      throw error
    }
    // What is answered now would be told as if nothing had happened.
    if (lost)
      throw new NotRecordedError(`${track.lane.name} is not answered, for ${lost}`)
    taken.set(key, track)
    track.used = true
    if (!track.noted) {
      const from = firstDifference(
        track.lane,
        track.answers[track.next].history,
        body,
        messages,
        clean,
      )
      track.noted = from !== undefined
      if (from) tell(`from ${from} on the model answers the recording, not your edit`)
    }
    const answer = track.answers[track.next++]
    return respond(answer, String(track.lane.header.model), restore, request.signal)
  }
}

/** The prompts that a lane was given, in order. */
export function promptsOf({ lines }: LaneFile): string[] {
  const isAsked = (line: LaneLine, i: number) =>
    line.role && isPrompt(line as MessageParam) && lines[i - 1]?.event !== 'compacted'
  return lines
    .filter(isAsked)
    .map(({ content }) => text(content as MessageParam['content']))
}

function startTrack(lane: LaneFile): Track {
  const answers: Answer[] = []
  let [seen, history] = [undefined as MessageParam[] | undefined, [] as MessageParam[]]
  let renumber = renumberIds()
  const again = ({ role, content }: MessageParam) =>
    ({ role, content: renumber(content) }) as MessageParam
  const lines = [...walk(lane.lines)]
  for (const [i, { line, before, length }] of lines.entries()) {
    if (before !== seen) {
      renumber = renumberIds()
      history = before.slice(0, length).map(again)
      seen = before
    }
    const retried = isAnswer(lines[i + 1]?.line ?? {})
    if (isAnswer(line)) answers.push({ line, history, position: length, retried })
    if (line.role && lines[i].after === before) history.push(again(line as MessageParam))
  }
  return { lane, answers, next: 0, noted: false }
}

function fits({ answers, next }: Track, messages: MessageParam[]): boolean {
  if (answers[next]?.position !== messages.length) return false
  return messages.every((message, i) => {
    const recorded = answers[next].history[i]
    if (message.role !== recorded.role || isPrompt(message) !== isPrompt(recorded))
      return false
    const mayDiffer = message.role === 'user' && !isPrompt(message)
    return mayDiffer || isDeepStrictEqual(message.content, recorded.content)
  })
}

/** A user message without tool results: somebody's words, where others are a tool's. */
function isPrompt({ role, content }: MessageParam): boolean {
  if (role !== 'user') return false
  return (
    typeof content === 'string' || !content.some(({ type }) => type === 'tool_result')
  )
}

function firstDifference(
  { name, header }: LaneFile,
  recorded: MessageParam[],
  { system, tools }: MessageCreateParams,
  messages: MessageParam[],
  clean: <T>(value: T) => T,
): string | undefined {
  const now = clean({ system, tools: describeTools((tools ?? []) as Tool[]) })
  const before = { system: header.system, tools: header.tools }
  if (!isDeepStrictEqual(now, before)) return `${name} 1`
  const i = messages.findIndex(({ content }, i) => {
    return !isDeepStrictEqual(content, recorded[i].content)
  })
  return i < 0 ? undefined : `${name} ${i + 1}`
}

function normalize(messages: MessageParam[], clean: <T>(value: T) => T): MessageParam[] {
  const renumber = renumberIds()
  const plain: MessageParam[] = JSON.parse(JSON.stringify(messages))
  return plain.map(({ role, content }) => {
    return { role, content: clean(renumber(content)) } as MessageParam
  })
}

function whyLost(
  folder: string,
  tracks: Track[],
  messages: MessageParam[],
  own?: Track,
): string {
  const prompts = tracks.map(({ lane }) => {
    return promptsOf(lane).map((prompt) => `\n  ${lane.name}: ${show(prompt)}`)
  })
  const what = whatIsLost(tracks, messages, own)
  return `${what}\nRecorded in ${folder}:${prompts.flat().join('')}\n${HOW_TO_GO_LIVE}`
}

function whatIsLost(tracks: Track[], messages: MessageParam[], own?: Track): string {
  const { length } = messages
  const last = messages[length - 1]
  if (isPrompt(last)) {
    const prompt = text(last.content)
    const isKnown = tracks.some(({ lane }) => promptsOf(lane).includes(prompt))
    const how = isKnown ? 'was recorded, but not at this place' : 'was not recorded'
    return `this prompt ${how}: ${show(prompt)}`
  }
  const name = own?.lane.name ?? 'a lane'
  const next = own?.lane.messages[length]?.role
  const missing = own && next !== 'assistant'
  return `${name} left the recording at its message ${length}${
    missing ? `: in ${name}.log no assistant message comes next` : ''
  }`
}

const text = (content: MessageParam['content']) =>
  typeof content === 'string' ? content : JSON.stringify(content)

function respond(
  { line, retried }: Answer,
  model: string,
  restore: Lane['restore'],
  signal?: AbortSignal | null,
): Response | Promise<Response> {
  const { event, status, error, message, content, stop_reason, usage } = line
  if (event === 'api_error') return errorResponse(Number(status), error, retried)
  if (event === 'bad_reply') throw new ReplyError(String(message), toBlocks(content))
  if (event === 'no_connection') throw noConnection(new Error(message))
  if (event === 'no_answer') return unanswered(signal)
  return Response.json({
    id: 'msg_recorded',
    type: 'message',
    role: 'assistant',
    model,
    content: restore(content),
    stop_reason,
    stop_sequence: null,
    usage: { input_tokens: 0, output_tokens: 0, ...usage },
  })
}

function errorResponse(status: number, error: unknown, retry = false): Response {
  const headers = { 'x-should-retry': String(retry), 'retry-after-ms': '1' }
  return Response.json({ type: 'error', error }, { status, headers })
}

/** Withholds the answer until the request is aborted. */
function unanswered(signal?: AbortSignal | null): Promise<Response> {
  return new Promise((_, reject) => {
    // A pending promise alone would let the process end, silently and early.
    const timer = setInterval(() => {}, 1 << 30)
    const stop = () => {
      clearInterval(timer)
      reject(signal?.reason ?? new Error('aborted'))
    }
    if (signal?.aborted) stop()
    else signal?.addEventListener('abort', stop, { once: true })
  })
}
