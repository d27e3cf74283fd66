// A run: which lane was started by which call, the order in which it unfolds, and what
// it comes to. Nothing here draws.

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
import { TASK_TOOLS } from './session.js'

/**
 * `moments` are the lines of all lanes, one after the other: the parent's up to a reply
 * with task calls, those of the children it started, and the parent's again. Each such
 * reply begins a section of the stage, and so does what follows the children.
 *
 * `parts` are the pieces of lanes that one call (or one compaction) started: all of a
 * child, unless it was resumed later on.
 */
export function makeRun(name, label, lanes, isRecorded) {
  lanes.sort(inOrder)
  for (const lane of lanes) {
    lane.at = [] // the moment of each of its lines
    const sizes = lane.requests.map(({ size }) => size)
    lane.most = largest(lane.unit === 'bytes' ? lane.parts.map(total) : sizes)
  }
  const parts = findParts(lanes)
  const run = { name, label, lanes, parts, isRecorded, moments: [], earlier: 0 }
  run.isOpen = new Map() // cards that the reader has opened or folded
  run.partOf = new Map(parts.flatMap((part) => (part.call ? [[part.call, part]] : [])))
  run.unit = lanes[0].unit
  unfold(run)
  paint(lanes, parts)
  const most = largest(run.moments.map(({ section }) => section.width))
  run.columns = parts.length && Math.max(1, Math.min(4, most))
  run.asOne = asOneHistory(run)
  return run
}

/** The parent first, then the children by the numbers in their names. */
function inOrder(a, b) {
  const isFirst = ({ name, isMain }) => name === 'parent' || isMain === true
  const order = a.name.localeCompare(b.name, 'en', { numeric: true })
  return isFirst(b) - isFirst(a) || order
}

/** Colours, dashes and marks: lanes differ by more than their hue. */
function paint(lanes, parts) {
  const owners = new Map(
    parts.flatMap((part) => (part.isSummary ? [[part.lane, part.owner]] : [])),
  )
  let n = 0
  for (const lane of lanes) {
    const owner = owners.get(lane)
    const look = owner?.look ?? (lane === lanes[0] ? 0 : ++n)
    lane.look = look
    lane.isSummary = owner !== undefined
    lane.colour = `var(--lane-${look && ((look - 1) % 6) + 1})`
  }
}

/**
 * Which call started, or resumed, which part of a lane, and which lane a compaction was
 * made in. A part ends where the next one of its lane begins.
 */
function findParts(lanes) {
  const parts = []
  const latest = new Map()
  const begin = (owner, at, lane, more, from = 0) => {
    const part = { owner, at, lane, from, to: lane.lines.length, ...more }
    if (latest.has(lane)) latest.get(lane).to = from
    latest.set(lane, part)
    parts.push(part)
  }
  for (const owner of lanes) {
    for (const [at, line] of owner.lines.entries()) {
      for (const call of callsOf(line)) {
        const found = findChild(lanes, latest, owner, call)
        if (found)
          begin(owner, at, found.lane, { call, ...returnOf(owner, at, call) }, found.from)
      }
      const lane = lanes.find(({ name }) => line.event && name === line.by)
      if (lane && lane !== owner && !latest.has(lane)) {
        const result = owner.lines.findIndex((line, i) => i > at && isMessage(line))
        const returned = result < 0 || line.event !== 'compacted' ? undefined : result
        begin(owner, at, lane, { isSummary: true, returned })
      }
    }
  }
  for (const lane of lanes.slice(1)) {
    if (!latest.has(lane)) adopt(lanes, lane, begin)
  }
  return parts
}

/** Of a call, the lane that it started, and the line at which its part begins. */
function findChild(lanes, latest, owner, call) {
  const { prompt, resume } = Object(call.input)
  if (!TASK_TOOLS.includes(call.name)) return undefined
  const isFree = (lane) => lane !== owner && lane !== lanes[0] && !latest.has(lane)
  const own = lanes.find(
    (lane) => lane.calledBy !== undefined && lane.calledBy === call.id,
  )
  if (own) return isFree(own) ? { lane: own, from: 0 } : undefined
  if (typeof prompt !== 'string') return undefined
  if (typeof resume !== 'string' || resume === '') {
    const isMeant = (lane) =>
      isFree(lane) &&
      lane.calledBy === undefined &&
      promptOf(lane.lines.find(isMessage)) === prompt
    const lane = lanes.find(isMeant)
    return lane && { lane, from: 0 }
  }
  const before = [...latest.values()].find(({ lane }) => lane.name === resume)
  const isNext = (line, i) => i > before.from && promptOf(line)?.includes(prompt)
  const from = before ? before.lane.lines.findIndex(isNext) : -1
  return from < 0 ? undefined : { lane: before.lane, from }
}

/** The result of a call: its block, and its line. An agent in the background reports
 * later, by a message that names it. */
function returnOf(owner, at, call) {
  const isReport = (line) => {
    const text = promptOf(line) ?? ''
    return text.includes('<task-notification') && text.includes(call.id)
  }
  const isAnswer = (block) => isResult(block) && block.tool_use_id === call.id
  const told = owner.lines.findIndex((line, i) => i > at && blocksOf(line).some(isAnswer))
  const result = told < 0 ? undefined : blocksOf(owner.lines[told]).find(isAnswer)
  const late = owner.lines.findIndex((line, i) => i > at && isReport(line))
  if (late < 0) return { result, returned: told < 0 ? undefined : told }
  return { result, returned: late, isAsync: true }
}

/** A lane that is called after another, and that nothing names: a summary that was lost. */
function adopt(lanes, lane, begin) {
  const owner = lanes.find((it) => it !== lane && lane.name.startsWith(`${it.name}.`))
  if (!owner) return
  const told = owner.lines.map((line) => JSON.stringify(line.content))
  const copies = lane.lines.map((line) => told.lastIndexOf(JSON.stringify(line.content)))
  const at = largest(copies.filter((i) => isMessage(owner.lines[i])))
  begin(owner, at, lane, { isSummary: true })
}

/** Puts the lines of all lanes in order, section by section. */
function unfold(run) {
  const [parent, ...children] = run.lanes
  const seen = new Set()
  // Before step 10 the calls of one reply run one after the other.
  const isSerial = Number.parseInt(parent.header.step, 10) < 10
  const startedAt = (lane, index) => {
    const those = run.parts.filter(
      (part) => part.owner === lane && part.at === index && !seen.has(part),
    )
    for (const part of those) seen.add(part)
    return those
  }
  const add = (lane, index, section, part) => {
    run.moments.push({ number: run.moments.length + 1, lane, index, section, part })
    lane.at[index] = run.moments.length
  }
  const linesOf = (part) => {
    const lines = []
    for (let index = part.from; index < part.to; index++) {
      lines.push([part, index])
      const inner = startedAt(part.lane, index)
      for (const it of inner) it.host = part
      lines.push(...inTurn(inner.map(linesOf), isSerial))
    }
    return lines
  }
  const addParts = (section) => {
    const lines = inTurn(section.parts.map(linesOf), section.isSerial)
    for (const [part, index] of lines) add(part.lane, index, section, part)
  }
  let section = { parts: [], width: 0 }
  for (const index of parent.lines.keys()) {
    const parts = startedAt(parent, index)
    const width = isSerial ? Math.min(1, parts.length) : parts.length
    if (parts.length > 0 || section.parts.length > 0) section = { parts, isSerial, width }
    add(parent, index, section)
    if (parts.length > 0) addParts(section)
  }
  // A lane that nothing started, and whatever hangs on it.
  for (const lane of children) {
    if (lane.at.length > 0 || lane.lines.length === 0) continue
    if (run.parts.some((part) => part.lane === lane && !isLost(run, part))) continue
    const part = { lane, owner: parent, from: 0, to: lane.lines.length, isAlone: true }
    addParts({ parts: [part], isSerial, isAlone: true, width: 1 })
  }
}

/** Whether a part's owners lead nowhere: lanes that say they started each other. */
function isLost({ parts, lanes }, { owner }, depth = 0) {
  if (owner === lanes[0]) return false
  const above = parts.find(({ lane }) => lane === owner)
  return above === undefined
    ? false
    : depth > lanes.length || isLost({ parts, lanes }, above, depth + 1)
}

/** Lines one part after another, or a line of each in turn. */
function inTurn(lists, isSerial) {
  if (isSerial || lists.length < 2) return lists.flat()
  const rows = [...Array(largest(lists.map(({ length }) => length))).keys()]
  return rows.flatMap((row) => lists.flatMap((those) => those.slice(row, row + 1)))
}

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
