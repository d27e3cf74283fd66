// A run: which lane was started by which call, the order in which it unfolds, and what
// it comes to. Nothing here draws.

import { asOneHistory } from './facts.js'
import {
  blocksOf,
  callsOf,
  isMessage,
  isResult,
  largest,
  promptOf,
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
