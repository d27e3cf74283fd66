// What a run comes to: sizes, states, landmarks. Nothing here draws.

import {
  asText,
  Broken,
  blocksOf,
  callsOf,
  isCall,
  isMessage,
  isRequest,
  isResult,
  largest,
  promptOf,
  textOf,
  total,
} from './lane.js'

/**
 * Computed: what the parent's requests would have been as one history. To each is added
 * what its children had in theirs, of those that had come back by then.
 */
export function asOneHistory({ lanes, parts }) {
  const [parent] = lanes
  return parent.requests.map(({ index, size }) => ({
    index,
    size: size + broughtBack({ lanes, parts }, index),
  }))
}

/** The messages of the children whose result stands before a line of the parent. */
export function broughtBack({ lanes, parts }, before) {
  const back = parts.filter(
    ({ owner, returned, isSummary }) =>
      owner === lanes[0] && returned < before && !isSummary,
  )
  return total(back.map((part) => weightOf(parts, part)))
}

/** The messages of a part, and those of the agents that it started in turn. */
function weightOf(parts, part, seen = new Set()) {
  if (seen.has(part)) return 0
  seen.add(part)
  const { lane, from, to } = part
  const inner = parts.filter(
    ({ owner, at, isSummary }) => owner === lane && at >= from && at < to && !isSummary,
  )
  const own =
    lane.unit === 'bytes' ? total(lane.grown.slice(from, to)) : tokensGrown(part)
  return own + total(inner.map((it) => weightOf(parts, it, seen)))
}

/** In tokens only requests have a size: what they grew by, and the last reply. */
function tokensGrown({ lane, from, to }) {
  const those = lane.requests.filter(({ index }) => index >= from && index < to)
  const grown = those.map(({ size }, i) =>
    Math.max(0, size - (those[i - 1] ?? those[0]).size),
  )
  const last = lane.lines[those.at(-1)?.index]?.usage?.output_tokens
  return total(grown) + (Number(last) || 0)
}

/** How many of a lane's lines there are at a moment. */
export function linesAt({ at }, moment) {
  let [low, high] = [0, at.length]
  while (low < high) {
    const middle = (low + high) >> 1
    if (at[middle] <= moment) low = middle + 1
    else high = middle
  }
  return low
}

/** What a lane's history holds after so many lines; of tokens, the last request tells. */
export function heldAt(lane, count) {
  if (lane.unit === 'bytes') return total(lane.parts[count])
  return lane.requests.findLast(({ index }) => index < count)?.size ?? 0
}

/** What a lane does at a moment: a key of the words' `states`, and for whom it waits. */
export function stateAt({ parts }, lane, moment) {
  const count = linesAt(lane, moment)
  if (count === 0) return { state: 'unborn' }
  const isTelling = (line) => isMessage(line) || isRequest(line)
  const next = lane.lines.findIndex((line, i) => i >= count && isTelling(line))
  if (next < 0) return { state: 'ended' }
  const busy = parts.filter(
    ({ owner, at, lane: child, to }) =>
      owner === lane && at === count - 1 && child.at[to - 1] > moment,
  )
  if (busy.length > 0) return { state: 'waits', who: namesOf(busy) }
  if (isRequest(lane.lines[next])) return { state: 'asks' }
  const last = lane.lines.findLast((line, i) => i < count && isMessage(line))
  return { state: callsOf(last).length > 0 ? 'runs' : 'rests' }
}

export const namesOf = (parts) => parts.map(({ lane }) => lane.name).join(', ')

/** Whether what came back is no success: the result says so, or there is no report. */
export const isFailed = ({ result, lane, to, isSummary, returned }) => {
  if (isSummary) return returned === undefined
  return result?.is_error === true || (lane.unit === 'tokens' && !hasReport(lane, to))
}

/** Whether a lane's last message is a text that asks for nothing more. */
function hasReport(lane, to) {
  const last = lane.lines.findLast(
    (line, i) => i < to && (isMessage(line) || isRequest(line)),
  )
  const blocks = blocksOf(last)
  return last?.role === 'assistant' && blocks.some(isText) && !blocks.some(isCall)
}

const isText = ({ type, text }) => type === 'text' && /\S/.test(asText(text))

/** The line that a part's outcome comes from: its last text, or where it failed. */
export function lastTextOf(part) {
  const { lane, from, to } = part
  if (isFailed(part)) return to - 1
  const isTold = (line) => line.role === 'assistant' && blocksOf(line).some(isText)
  const told = lane.lines.slice(from, to).findLastIndex(isTold)
  return told < 0 ? to - 1 : from + told
}

/** The moments worth jumping to: work that is handed out, and what comes back. */
export function landmarksOf({ parts }) {
  const marks = parts.flatMap((part) => {
    const { owner, at, returned, isSummary, lane } = part
    const back = isSummary ? 'compacted' : isFailed(part) ? 'failed' : 'back'
    return [
      { moment: owner.at[at], key: isSummary ? 'summary' : 'task', who: lane.name },
      { moment: owner.at[returned], key: back, who: lane.name },
    ]
  })
  return marks
    .filter(({ moment }) => moment !== undefined)
    .sort((a, b) => a.moment - b.moment)
}

/** How a lane ended: a key of the words' `ends`. */
export function endOf({ parts, lanes }, lane) {
  const part = parts.findLast((it) => it.lane === lane)
  if (part && !part.isSummary) return isFailed(part) ? 'failed' : 'report'
  if (hasReport(lane, lane.lines.length)) return 'text'
  return lane === lanes[0] || part ? 'open' : 'failed'
}

/** Where a run is opened: a report has just come back. */
export function openingOf(run) {
  const back = landmarksOf(run).find(({ key }) => key === 'back' || key === 'failed')
  return back?.moment ?? run.moments.length
}

/** The moments whose lines hold a text, in whatever case. */
export function search({ moments }, wanted) {
  const needle = wanted.toLowerCase()
  if (needle === '') return []
  const textIn = ({ lane, index }) => {
    const line = lane.lines[index]
    return line instanceof Broken
      ? line.row
      : asText(isMessage(line) ? line.content : line)
  }
  return moments
    .filter((moment) => {
      moment.text ??= textIn(moment).replaceAll('\\n', '\n').toLowerCase()
      return moment.text.includes(needle)
    })
    .map(({ number }) => number)
}

/**
 * What lanes come to: messages, requests, the largest, all of them, calls and requests
 * that failed, and tokens where an API gave them.
 */
export function sumsOf(lanes) {
  const sizes = lanes.flatMap(({ requests }) => requests.map(({ size }) => size))
  const lines = lanes.flatMap(({ lines }) => lines)
  const usages = lines.flatMap(({ usage }) => usage ?? [])
  const tokens = (...fields) =>
    total(usages.flatMap((usage) => fields.map((field) => Number(usage[field]) || 0)))
  const cached = ['cache_creation_input_tokens', 'cache_read_input_tokens']
  const failed = ({ is_error }) => is_error === true
  return {
    messages: total(lanes.map(({ counts }) => counts.at(-1))),
    requests: sizes.length,
    largest: largest(sizes),
    all: total(sizes),
    failures:
      lines.filter((line) => line.event && isRequest(line)).length +
      lines.flatMap(blocksOf).filter(isResult).filter(failed).length,
    ...(usages.length > 0 && {
      tokensIn: tokens('input_tokens', ...cached),
      tokensOut: tokens('output_tokens'),
    }),
  }
}

/** The bytes of the texts that came back to the parent, and of whom. */
export function reportsOf({ parts, lanes }) {
  return parts.filter(
    ({ owner, returned, isSummary }) =>
      owner === lanes[0] && returned !== undefined && !isSummary,
  )
}

export const reportText = ({ owner, returned, result, isAsync }) =>
  isAsync ? promptOf(owner.lines[returned]) : textOf(result.content)
