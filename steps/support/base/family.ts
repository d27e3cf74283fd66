/** A run's lanes as a family: which call started which child, and one history of all. */
import { isAnswer, type LaneFile, requestSizes, sizeOf } from './lane-file.ts'
import { textOf } from './messages.ts'
import { type Json, toBlocks } from './protocol.ts'
import { withCommas } from './width.ts'

/** The lines of a lane that one call brought about: all, unless another resumed it. */
export type Part = { lane: LaneFile; from: number; to: number }

/** The name of the lane that a summary lane sums up; undefined for any other lane. */
export const summedUpBy = ({ name }: LaneFile) => /^(.+)\.summary-\d+$/.exec(name)?.[1]

/** Which `task` call of the parent started, or resumed, which part of a child. */
export function partsOf([parent, ...others]: LaneFile[]): Map<Json, Part> {
  const free = others.filter((lane) => !summedUpBy(lane)).flatMap(startsOf)
  const parts = new Map<Json, Part>()
  const replies = parent.lines.filter(({ role }) => role === 'assistant')
  for (const call of replies.flatMap(({ content }) => toBlocks(content))) {
    const { prompt, resume } = Object(call.input)
    const at = free.findIndex(({ lane, from, text }) => {
      if (resume) return lane.name === resume && from > 0 && text.includes(prompt)
      return from === 0 && text === prompt
    })
    if (call.name !== 'task' || at < 0) continue
    const [part] = free.splice(at, 1)
    for (const other of parts.values()) {
      if (other.lane === part.lane) other.to = Math.min(other.to, part.from)
    }
    parts.set(call, part)
  }
  return parts
}

/** A part from each prompt of a lane to its end. */
function startsOf(lane: LaneFile): (Part & { text: string })[] {
  return lane.lines.flatMap(({ role, content = '' }, from) => {
    const isPrompt = role === 'user' && toBlocks(content)[0]?.type !== 'tool_result'
    const text = textOf({ content })
    return isPrompt ? [{ lane, from, to: lane.lines.length, text }] : []
  })
}

/**
 * Computed: the size of each request of the parent, had its children worked in its own
 * history. To the request's own bytes come those of every message in the parts that had
 * come back by then.
 */
export function asOneHistory(lanes: LaneFile[]): number[] {
  const [parent] = lanes
  const parts = new Map([...partsOf(lanes)].map(([{ id }, part]) => [id, part]))
  const own = requestSizes(parent)
  const sizes: number[] = []
  let added = 0
  for (const line of parent.lines) {
    if (isAnswer(line)) sizes.push(own[sizes.length] + added)
    for (const { tool_use_id } of toBlocks(line.content)) {
      added += sizeOfPart(parts.get(tool_use_id))
    }
  }
  return sizes
}

function sizeOfPart(part?: Part): number {
  const lines = part?.lane.lines.slice(part.from, part.to) ?? []
  const messages = lines.filter(({ role }) => role)
  return sizeOf(messages.map(({ role, content }) => ({ role, content })))
}

/**
 * How many messages a lane has, and its largest request, in words; for the parent also
 * what that would have been with its children's messages.
 */
export function inNumbers(lane: LaneFile, lanes: LaneFile[]): [string, string] {
  const { length } = lane.lines.filter(({ role }) => role)
  const most = (sizes: number[]) => withCommas(Math.max(0, ...sizes))
  const size = `largest request ${most(requestSizes(lane))} bytes`
  const isAlone = lane !== lanes[0] || lanes.slice(1).every(summedUpBy)
  const one = `(computed: ${most(asOneHistory(lanes))} with its children's messages)`
  const messages = `${length} message${length === 1 ? '' : 's'}`
  return [messages, isAlone ? size : `${size} ${one}`]
}
