/** The offline model: SDK middleware that answers from recorded lanes. */
import { setTimeout as sleep } from 'node:timers/promises'
import { isDeepStrictEqual } from 'node:util'
import type { Middleware } from '@anthropic-ai/sdk'
import type { MessageCreateParams, MessageParam } from '@anthropic-ai/sdk/resources'
import { GO_LIVE, noConnection, ReplyError, RunError, show } from '../base/errors.ts'
import type { Lane } from '../base/lane.ts'
import { isAnswer, type LaneFile, renumberIds, walk } from '../base/lane-file.ts'
import { textOf } from '../base/messages.ts'
import { shorten } from '../base/paths.ts'
import { requestError, toBlocks } from '../base/protocol.ts'

export type ReplayOptions = {
  folder: string
  lanes: LaneFile[]
  laneOf: (messages: MessageParam[]) => Lane // the run's
  tell: (line: string) => void // to the reader
}

type LaneLine = LaneFile['lines'][number]
/** A recorded lane while it is replayed, and the answers that are left. */
type Track = { lane: LaneFile; answers: Answer[]; noted: boolean }
/** A recorded answer, and the first `length` messages of `before`, which it answers. */
type Answer = { line: LaneLine; before: MessageParam[]; length: number; retried: boolean }

/**
 * Answers `POST /v1/messages` from recorded lanes, never from a network. Each lane of the
 * run gets the recorded one whose user prompts and assistant turns equal its own; of
 * several, the earliest that is still free. Tool results may differ: the first difference
 * in a lane is told. What the real API refuses is refused, with its status and wording.
 *
 * @throws {RunError} from then on, once a conversation has left the recording
 */
export function replay(options: ReplayOptions): Middleware {
  const { lanes, laneOf, tell } = options
  const tracks = lanes.map(startTrack)
  const taken = new Map<string, Track>() // by the run's lane
  let lost: string | undefined

  return async (request, _next, context) => {
    const body = context.options?.body as MessageCreateParams
    const refusal = requestError(body)
    if (refusal) return failed(400, { type: 'invalid_request_error', message: refusal })
    const lane = laneOf(body.messages)
    const { name, header, clean } = lane
    const messages = normalize(clean(JSON.parse(JSON.stringify(body.messages))))
    const own = taken.get(name)
    const free = tracks.filter((track) => ![...taken.values()].includes(track))
    const track = (own ? [own] : free).find(({ answers }) => fits(answers[0], messages))
    const answer = track?.answers.shift()
    if (!track || !answer || lost) {
      // What is answered now would be told as if nothing had happened.
      const silent = `${name} is not answered, for ${lost}`
      const what = answer ? silent : whatIsLost(tracks, messages, name, own)
      lost ??= what
      throw new RunError(`${what}\n${whatIsThere(options)}`)
    }
    taken.set(name, track)
    if (!track.noted) {
      const [runs, ran] = [header, track.lane.header].map((it) => [it.system, it.tools])
      const recorded = historyOf(answer)
      const other = messages.findIndex((it, i) => !isDeepStrictEqual(it, recorded[i]))
      const from = isDeepStrictEqual(runs, ran) ? other + 1 : 1 // 0 if all is as recorded
      track.noted = from > 0
      const at = `${track.lane.name} ${from}`
      if (from) tell(`from ${at} on the model answers the recording, not your edit`)
    }
    return respond(answer, lane, request.signal ?? undefined)
  }
}

/** The prompts that a lane was given, in order; a summary in place of others is none. */
export function promptsOf({ lines }: LaneFile): string[] {
  return [...walk(lines)]
    .filter(({ line, before, after }) => before === after && isPrompt(line))
    .map(({ line }) => textOf({ content: line.content ?? '' }))
}

function startTrack(lane: LaneFile): Track {
  const { lines } = lane
  const answers = [...walk(lines)]
    // The SDK tried again by itself where one answer follows another.
    .map((at, i) => ({ ...at, retried: isAnswer(lines[i + 1] ?? {}) }))
    .filter(({ line }) => isAnswer(line))
  return { lane, answers, noted: false }
}

function fits(answer: Answer | undefined, messages: MessageParam[]): boolean {
  const said = (message: MessageParam) =>
    message.role === 'assistant' || isPrompt(message) ? message : 'what tools say'
  const recorded = answer ? historyOf(answer) : []
  return isDeepStrictEqual(messages.map(said), recorded.map(said))
}

const historyOf = ({ before, length }: Answer) => normalize(before.slice(0, length))

/** Messages whose ids count from 1, whatever an endpoint or an author called them. */
function normalize(messages: MessageParam[]): MessageParam[] {
  const renumber = renumberIds()
  return messages.map((message) => {
    return { ...message, content: renumber(message.content) } as MessageParam
  })
}

/** A user message without tool results: somebody's words, where others are a tool's. */
function isPrompt({ role, content }: LaneLine | MessageParam): boolean {
  return role === 'user' && !toBlocks(content).some(({ type }) => type === 'tool_result')
}

function whatIsThere({ folder, lanes }: ReplayOptions): string {
  const prompts = lanes.flatMap((lane) =>
    promptsOf(lane).map((prompt) => `\n  ${lane.name}: ${show(prompt)}`),
  )
  return `Recorded in ${shorten(folder)}:${prompts.join('')}\n${GO_LIVE}`
}

function whatIsLost(
  tracks: Track[],
  messages: MessageParam[],
  name: string,
  own?: Track,
) {
  const last = messages[messages.length - 1]
  if (isPrompt(last)) {
    const prompt = textOf(last)
    const isKnown = tracks.some(({ lane }) => promptsOf(lane).includes(prompt))
    const how = isKnown ? 'was recorded, but not at this place' : 'was not recorded'
    return `this prompt ${how}: ${show(prompt)}`
  }
  const next = own?.answers[0]?.length ?? 'no'
  const there = `next it answers ${next} other messages`
  return `${name} left the recording at its message ${messages.length}: ${there}`
}

async function respond(
  { line, retried }: Answer,
  { restore }: Lane,
  signal?: AbortSignal,
) {
  const { event, status, error, message, content = [], stop_reason, usage } = line
  if (event === 'api_error') return failed(Number(status), error, retried)
  if (event === 'bad_reply') throw new ReplyError(String(message))
  if (event === 'no_connection') throw noConnection(new Error(message))
  // A timer, since a pending promise alone would let the process end, silently and early.
  if (event === 'no_answer') await sleep(2 ** 30, undefined, { signal })
  return Response.json({ content: restore(content), stop_reason, usage })
}

function failed(status: number, error: unknown, retry = false): Response {
  const headers = { 'x-should-retry': String(retry), 'retry-after-ms': '1' }
  return Response.json({ type: 'error', error }, { status, headers })
}
