/** A run's lanes as a family: which call started which child, and one history of all. */
import {
  isAnswer,
  type LaneFile,
  type LaneLine,
  requestSizes,
  sizeOf,
} from './lane-file.ts'
import { textOf } from './messages.ts'
import { type Json, toBlocks } from './protocol.ts'

/** The lines of a lane that one call brought about: all, unless another resumed it. */
export type Part = { lane: LaneFile; from: number; to: number }

/** The name of the lane that a summary lane sums up; undefined for any other lane. */
export const summedUpBy = ({ name }: LaneFile) => /^(.+)\.summary-\d+$/.exec(name)?.[1]

/** Which `task` call of the parent started, or resumed, which part of a child. */
export function partsOf([parent, ...others]: LaneFile[]): Map<Json, Part> {
  const children = others.filter((lane) => !summedUpBy(lane))
  const parts = new Map<Json, Part>()
  const latest = new Map<string, Part>()
  const replies = parent.lines.filter(({ role }) => role === 'assistant')
  for (const call of replies.flatMap(({ content }) => toBlocks(content))) {
    const { prompt, resume } = Object(call.input)
    if (call.name !== 'task' || typeof prompt !== 'string') continue
    const earlier = latest.get(resume)
    const isNew = (lane: LaneFile) =>
      !latest.has(lane.name) && promptOf(lane.lines.find(({ role }) => role)) === prompt
    const isNext = (line: LaneLine, i: number) =>
      earlier && i > earlier.from && promptOf(line)?.includes(prompt)
    const lane = resume ? earlier?.lane : children.find(isNew)
    const from = earlier ? earlier.lane.lines.findIndex(isNext) : 0
    if (!lane || from < 0) continue
    if (earlier) earlier.to = from
    const part = { lane, from, to: lane.lines.length }
    latest.set(lane.name, part)
    parts.set(call, part)
  }
  return parts
}

/** The text of a user message that holds no tool results. */
function promptOf({ role, content = '' }: LaneLine = {}): string | undefined {
  const isPrompt = role === 'user' && toBlocks(content)[0]?.type !== 'tool_result'
  return isPrompt ? textOf({ content }) : undefined
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
  const most = (sizes: number[]) => Math.max(0, ...sizes).toLocaleString('en-US')
  const size = `largest request ${most(requestSizes(lane))} bytes`
  const children = lanes.slice(1).filter((other) => !summedUpBy(other))
  const isAlone = lane !== lanes[0] || children.length === 0
  const computed = isAlone
    ? ''
    : ` (computed: ${most(asOneHistory(lanes))} with its children's messages)`
  return [`${length} message${length === 1 ? '' : 's'}`, size + computed]
}
