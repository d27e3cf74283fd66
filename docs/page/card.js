// A line of a lane as a card: one row when it is folded, all of its text when it is open.

import { isFailed, lastTextOf, namesOf } from './facts.js'
import {
  asText,
  Broken,
  blocksOf,
  brief,
  isCall,
  isMessage,
  isResult,
  textOf,
} from './lane.js'
import { addressOf, code, el, number, say, sized, text, view, words } from './view.js'

/** Where calls, and the outcomes of parts, are drawn: for the lines between them. */
export const drawn = new WeakMap()

export const toolsOf = (calls) => calls.map((call) => brief(call?.name ?? '?')).join(', ')

/**
 * What a line is to the story: a key of the words' `captions`, and the lanes or tools
 * that it is about.
 */
export function roleInStory({ lane, index, part }) {
  const { lanes, parts } = view.run
  const line = lane.lines[index]
  if (!isMessage(line)) return { caption: line instanceof Broken ? 'broken' : 'event' }
  const blocks = blocksOf(line)
  const calls = blocks.filter(isCall)
  if (calls.length > 0) {
    const started = parts.filter(({ owner, at }) => owner === lane && at === index)
    if (started.length === 0) return { caption: 'calls', what: toolsOf(calls) }
    return { caption: 'delegates', what: namesOf(started) }
  }
  const back = parts.filter(
    ({ owner, returned, isSummary }) =>
      owner === lane && returned === index && !isSummary,
  )
  if (back.length > 0) return { caption: 'report', what: namesOf(back) }
  const results = blocks.filter(isResult)
  if (results.length > 0) {
    const what = toolsOf(results.map((block) => lane.callOf.get(block)))
    return { caption: 'results', what }
  }
  const replaced = [...lane.leftOut.values()].filter((by) => by === index)
  if (replaced.length > 0) return { caption: 'summary', n: replaced.length }
  if (line.role === 'user') {
    if (part?.isSummary) return { caption: 'more' }
    if (lane.counts[index] > 0) return { caption: 'more' }
    return { caption: lane === lanes[0] ? 'prompt' : 'task' }
  }
  if (part && index === lastTextOf(part)) return { caption: 'last' }
  return { caption: lane === lanes[0] ? 'answer' : 'text' }
}

/** Open without being asked: the moment itself, what is handed over, what went wrong. */
export function isOpen(moment) {
  const { run, openAll } = view
  const asked = run.isOpen.get(moment.number)
  if (asked !== undefined) return asked
  const line = moment.lane.lines[moment.index]
  if (openAll || moment.number === view.moment || isBad(line)) return true
  return ['delegates', 'report', 'last', 'summary'].includes(roleInStory(moment).caption)
}

const isBad = (line) =>
  line instanceof Broken || line.level === 'warn' || line.level === 'error'

/** `toggle` folds the card, or opens it. */
export function card(moment, toggle) {
  const { lane, index } = moment
  const line = lane.lines[index]
  const isBroken = line instanceof Broken
  const kind = isBroken ? 'broken' : isMessage(line) ? line.role : 'event'
  const open = isOpen(moment)
  const count = isMessage(line) ? ` ${lane.counts[index + 1]}` : ''
  const { caption, ...about } = roleInStory(moment)
  const isCut = line.stop_reason && !['end_turn', 'tool_use'].includes(line.stop_reason)
  const isTold = open ? !['calls', 'results', 'event'].includes(caption) : false
  const weight = lane.unit === 'bytes' ? lane.grown[index] : 0
  const name = lane.name + count
  const head = el(
    'header.card-head',
    {},
    el('button.fold', { type: 'button', 'aria-expanded': open, click: toggle }, name),
    kind === 'event' && open ? el('b.card-event', {}, brief(line.event)) : [],
    isMessage(line) && open ? el('span', {}, kind) : [],
    isTold ? el('span.caption', {}, say(words().captions[caption], about)) : [],
    open ? [] : el('span.gist', {}, gistOf(moment)),
    isCut ? el('span.tag', {}, brief(line.stop_reason)) : [],
    weight > 0
      ? el('span.weight', { title: sized(weight, 'bytes') }, `+${number(weight)}`)
      : [],
    open
      ? el(
          'a.card-link',
          { href: addressOf(view.run, moment.number), 'aria-label': name },
          '#',
        )
      : [],
  )
  const body = !open
    ? []
    : isBroken
      ? drawBroken(line)
      : kind === 'event'
        ? drawEvent(line)
        : blocksOf(line).map((block) => drawBlock(moment, block))
  const look = [kind, isBad(line) && 'bad', open ? 'open' : 'folded', `told-${caption}`]
  return el(
    `article.card.${look.filter(Boolean).join('.')}`,
    { id: `m${moment.number}`, lane },
    head,
    body,
  )
}

/** A line in a few words: its calls, or the beginning of its text. */
function gistOf({ lane, index }) {
  const line = lane.lines[index]
  if (line instanceof Broken) return line.row.slice(0, 160)
  if (!isMessage(line)) return brief(line.event)
  const pieces = blocksOf(line).map((block) => {
    if (isCall(block)) return `→ ${brief(block.name)} ${tellingOf(block.input)}`
    if (isResult(block)) {
      const mark = block.is_error === true ? '✗' : '←'
      return `${mark} ${textOf(block.content).slice(0, 160)}`
    }
    return asText(block.text ?? block.thinking ?? `[${brief(block.type)}]`).slice(0, 160)
  })
  return pieces
    .join(' · ')
    .replace(/\s+/g, ' ')
    .replace(/[\ud800-\udbff]$/, '')
}

/** Of a call's input, the field that tells most. */
function tellingOf(input) {
  const fields = Object(input)
  const keys = [
    'path',
    'file_path',
    'command',
    'description',
    'pattern',
    'prompt',
    'query',
  ]
  const key = keys.find((it) => typeof fields[it] === 'string' && fields[it].trim())
  return key ? fields[key].slice(0, 120) : asText(input).slice(0, 120)
}

const drawBroken = ({ row, number: at }) => [
  text(say(words().brokenLine, { n: at })),
  code(row),
]

function drawEvent({ level: _, event, status, error, ...rest }) {
  const told = Object.hasOwn(words().events, event) ? words().events[event] : undefined
  const what = [told, status, error?.type].filter(Boolean).map(brief)
  const said = error?.message ?? error
  return [
    what.length > 0 ? text(what.join(' · ')) : [],
    said === undefined ? [] : text(asText(said)),
    drawFields(rest),
  ]
}

const drawFields = (fields) =>
  el(
    'dl.input',
    {},
    Object.entries(fields)
      .filter(([, value]) => value !== undefined)
      .map(([key, value]) => [
        el('dt.field', {}, brief(key)),
        el('dd.value', {}, code(asText(value))),
      ]),
  )

function drawBlock(moment, block) {
  if (isCall(block)) return drawCall(block)
  if (isResult(block)) return drawResult(moment, block)
  if (block.type === 'text') {
    const part = view.run.parts.find(
      ({ isAsync, owner, returned }) =>
        isAsync && owner === moment.lane && returned === moment.index,
    )
    return part ? drawOutcome(part, asText(block.text)) : text(asText(block.text))
  }
  const isThought = block.type === 'thinking' && typeof block.thinking === 'string'
  const name = isThought ? words().thinking : `[${brief(block.type)}]`
  return el(
    'div.block.result',
    {},
    el('h4.block-name', {}, name),
    isThought ? text(block.thinking) : code(asText(block)),
  )
}

function drawCall(block) {
  const { name, input } = block
  const hasFields = input !== null && typeof input === 'object'
  const node = el(
    'div.block.call',
    {},
    el('h4.block-name', {}, `→ ${brief(name)}`),
    hasFields ? drawFields(input) : code(asText(input)),
  )
  drawn.set(block, node)
  return node
}

function drawResult({ lane }, block) {
  const call = lane.callOf.get(block)
  const part = view.run.partOf.get(call)
  if (part && !part.isAsync) return drawOutcome(part, textOf(block.content))
  const isError = block.is_error === true
  return el(
    `div.block.result.${isError ? 'error' : 'fine'}`,
    {},
    el(
      'h4.block-name',
      {},
      `← ${toolsOf([call])}`,
      isError ? [' ', el('span.tag', {}, words().error)] : [],
    ),
    code(textOf(block.content)),
  )
}

/** What came back; where it is no success, it looks like it. */
function drawOutcome(part, told) {
  const failed = isFailed(part)
  const name = `${failed ? '✗' : '↩'} ${say(words().from, { who: part.lane.name })}`
  const node = el(
    `div.block.result.outcome${failed ? '.failed' : ''}`,
    { lane: part.lane },
    el(
      'h4.block-name',
      {},
      name,
      failed ? [' ', el('span.tag', {}, words().notCompleted)] : [],
    ),
    text(told),
  )
  drawn.set(part, node)
  return node
}
