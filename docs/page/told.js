// The run in a sentence, in bars and in numbers. Bars tell of the moment, the rest of
// the whole run, and says so.

import {
  broughtBack,
  endOf,
  heldAt,
  isFailed,
  linesAt,
  namesOf,
  reportsOf,
  reportText,
  stateAt,
  sumsOf,
} from './facts.js'
import { asText, brief, isMessage, largest, lengthOf, textOf, total } from './lane.js'
import {
  $,
  addressOf,
  el,
  number,
  plural,
  runs,
  say,
  sized,
  tellBold,
  view,
  visible,
  words,
} from './view.js'

const BASELINE = '02-tool-use'
const MOST_BARS = 14

const firstPrompt = ({ lanes }) => textOf(lanes[0].lines.find(isMessage)?.content)

/** The run to compare with: the one asked for, or step 02, if the prompt is the same. */
export function comparison() {
  const { run, behind = BASELINE } = view
  const other = runs.get(behind)
  if (!other || other === run || other.unit !== run.unit) return undefined
  const isChosen = view.behind !== undefined
  return isChosen || firstPrompt(other) === firstPrompt(run) ? other : undefined
}

/** The point of the run: what stayed away, and what the parent's request would be. */
export function drawSum() {
  const { run } = view
  const parent = sumsOf([run.lanes[0]])
  const children = run.lanes.filter((lane, i) => i > 0 && !lane.isSummary)
  const told = children.length > 0 ? sumOfChildren(children, parent) : sumOfOne(parent)
  const note = Object.hasOwn(words().notes, run.name)
    ? words().notes[run.name]
    : undefined
  const noted = note && run.isRecorded ? [el('span.sum-note', {}, ` ${note}`)] : []
  const n = total(run.lanes.map(({ leftOut }) => leftOut.size))
  if (n > 0) noted.unshift(' ', ...tellBold(plural(words().sumCompacted, n)))
  $('sum').replaceChildren(el('span.whole', {}, words().whole), ...told, ...noted)
}

const sumOfOne = ({ messages, requests, largest, all }) =>
  tellBold(words().sumOne, {
    messages: plural(words().message, messages),
    largest: sized(largest),
    all: sized(all),
    n: number(requests),
  })

function sumOfChildren(children, parent) {
  const { run } = view
  const { messages } = sumsOf(children)
  const back = reportsOf(run)
  const failed = run.parts.filter((part) => !part.isSummary && isFailed(part))
  const bytes = total(back.map((part) => lengthOf(reportText(part))))
  const many = say(words().subagents, { n: children.length })
  const asOne = largest(run.asOne.map(({ size }) => size))
  const times = (asOne / (parent.largest || 1)).toFixed(1)
  const sent = sumsOf(run.lanes).all
  const behind = comparison()
  const before = behind && sumsOf(behind.lanes).all
  const cost = !behind ? 'sumTotal' : sent < before ? 'sumLess' : 'sumMore'
  return [
    ...tellBold(words().sumChild[children.length === 1 ? 0 : 1], {
      who: children.length === 1 ? children[0].name : many,
      messages: plural(words().message, messages),
    }),
    ...(back.length === 0
      ? [words().sumNone]
      : tellBold(words().sumBack[back.length === 1 ? 0 : 1], {
          n: number(back.length),
          back: sized(bytes, 'bytes'),
        })),
    ...(failed.length > 0 ? tellBold(words().sumFailed, { who: namesOf(failed) }) : []),
    ...tellBold(asOne > parent.largest ? words().sumAsOne : words().sumSame, {
      largest: sized(parent.largest),
      asOne: number(asOne),
      times,
    }),
    ...tellBold(words()[cost], {
      all: sized(sent),
      before: number(before ?? 0),
      run: behind?.label ?? '',
    }),
  ]
}

/** What each history holds at the moment, in bars on one grid. */
export function drawBars() {
  const { run, moment } = view
  const rows = barsOf(run, moment)
  const most = largest(
    run.lanes.map(({ most }) => most).concat(run.asOne.map(({ size }) => size)),
  )
  const hidden = run.lanes.length - rows.length
  $('now-title').textContent = words().now[run.unit]
  $('bars').dataset.many = rows.length > 3
  $('bars').replaceChildren(
    ...rows.map((row) => drawBar(row, most)),
    hidden > 0 ? el('li.more-lanes', {}, plural(words().moreLanes, hidden)) : '',
  )
  const now = run.moments[moment - 1]?.lane
  const near = rows.find(({ lane }) => lane === now && lane !== run.lanes[0])
  const other = near ?? rows.slice(1).findLast(({ state }) => state !== 'unborn')
  const meter = [rows[0], other].filter(Boolean)
  $('meter').replaceChildren(...meter.map((row) => drawBar(row, most)))
}

/** The parent, and of too many lanes those that are at work or were last. */
function barsOf(run, moment) {
  const rows = run.lanes.map((lane) => {
    const count = linesAt(lane, moment)
    const isParent = lane === run.lanes[0]
    const size = count > 0 ? heldAt(lane, count) : 0
    const parts = lane.unit === 'bytes' ? lane.parts[count] : [0, 0, size, 0]
    const extra = isParent ? broughtBack(run, count) : 0
    return { lane, count, size, parts, extra, ...stateAt(run, lane, moment) }
  })
  if (rows.length <= MOST_BARS) return rows
  const isBusy = ({ state }) => state !== 'unborn' && state !== 'ended'
  const rest = rows.slice(1).filter(({ state }) => state !== 'unborn')
  const chosen = new Set([...rest.filter(isBusy), ...rest.toReversed(), ...rows.slice(1)])
  const shown = new Set([rows[0], ...[...chosen].slice(0, MOST_BARS - 1)])
  return rows.filter((row) => shown.has(row))
}

function drawBar({ lane, size, parts, extra, state, who, count }, most) {
  const isBorn = state !== 'unborn'
  const piece = (name, value, title) => {
    const node = el(`span.${name}`, { title })
    node.style.width = `${(100 * value) / (most || 1)}%`
    return node
  }
  const pieces = parts.map((part, i) =>
    part > 0 && isBorn
      ? piece(`kind-${i}`, part, `${words().kinds[i]}: ${number(part)}`)
      : [],
  )
  const told = say(words().states[state], { who })
  const title = `${lane.name}: ${told}, ${plural(words().message, lane.counts[count])}`
  const ghost =
    extra > 0 ? piece('ghost', extra, `${words().asOne}: +${number(extra)}`) : []
  return el(
    'li.bar-row',
    { lane, title, 'data-lane': lane.name, 'data-state': state, 'data-size': size },
    el('span.bar-name', {}, lane.name),
    el('span.bar', { 'aria-hidden': 'true' }, pieces, ghost),
    el('span.bar-size', {}, isBorn ? number(size) : '–'),
    el('span.bar-state', {}, told),
  )
}

export function drawKinds() {
  const { run } = view
  const swatch = (name, label) => el('span', {}, el(`i.swatch.${name}`, {}), label)
  const kinds = run.unit === 'bytes' ? words().kinds : []
  const ghost = run.asOne.some(({ size }, i) => size > run.lanes[0].requests[i].size)
  $('kinds').replaceChildren(
    ...kinds.map((kind, i) => swatch(`kind-${i}`, kind)),
    ghost ? swatch('ghost', words().asOne) : '',
  )
}

export function drawOrigin() {
  const { lanes, isRecorded, unit } = view.run
  const { mode, model, note, file } = lanes[0].header
  const told = {
    mode: brief(mode ?? '?'),
    model: brief(model ?? '?'),
    file: brief(file ?? ''),
  }
  const byHand = isRecorded ? `${words().byHand} ` : ''
  const noted = note === undefined ? '' : ` ${byHand}“${visible(asText(note))}”`
  const sentence = unit === 'tokens' ? words().session : words().origin
  $('origin').textContent = visible(say(sentence, told)) + noted
}

/** The table of the whole run; the lanes' names lead to where they begin. */
export function drawNumbers() {
  const { run } = view
  const behind = comparison()
  const rows = (behind ? [run, behind] : [run]).flatMap((of) => {
    const each = of.lanes.map((lane) => ({ of, name: lane.name, lanes: [lane] }))
    const all = { of, name: words().allLanes, lanes: of.lanes }
    return of.lanes.length > 1 ? [...each, all] : each
  })
  const sums = rows.map(({ lanes }) => sumsOf(lanes))
  // Where sizes are tokens, all requests are the tokens in.
  const isShown = (key) =>
    sums.some((it) => key in it) && !(run.unit === 'tokens' && key === 'tokensIn')
  const keys = Object.keys(words().columns).filter(isShown)
  const titles = [words().lane, ...keys.map((key) => words().columns[key]), words().ended]
  const body = rows.map(({ of, name, lanes }, i) => {
    const lane = of === run && lanes.length === 1 ? lanes[0] : undefined
    const title = behind ? `${of.label} ${name}` : name
    const link = lane?.at[0]
      ? el('a', { href: addressOf(run, lane.at[0]) }, title)
      : title
    const cells = keys.map((key) => {
      const value = sums[i][key]
      const isBad = key === 'failures' && value > 0
      return el(`td${isBad ? '.bad' : ''}`, {}, value === undefined ? '–' : number(value))
    })
    const end = lanes.length === 1 ? endOf(of, lanes[0]) : undefined
    const isBad = end === 'failed' || end === 'open'
    cells.push(el(`td${isBad ? '.bad' : ''}`, {}, end ? words().ends[end] : ''))
    return el('tr', {}, el('th.row-name', { scope: 'row', lane }, link), cells)
  })
  const head = titles.map((name) => el('th', { scope: 'col' }, name))
  $('numbers').replaceChildren(
    el(
      'div.wide',
      {},
      el('table', {}, el('thead', {}, el('tr', {}, head)), el('tbody', {}, body)),
    ),
    el('p', {}, words().unit[run.unit]),
    ...drawShare(run, behind),
  )
}

function drawShare(run, behind) {
  const sent = (lanes) => sumsOf(lanes).all
  if (!behind || sent([behind.lanes[0]]) === 0) return []
  const share = (now, before) => Math.round((100 * sent(now)) / sent(before))
  const a = share([run.lanes[0]], [behind.lanes[0]])
  const b = share(run.lanes, behind.lanes)
  return [el('p', {}, say(words().share, { a, b, run: behind.label }))]
}
