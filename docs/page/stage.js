// The stage: the parent on the left, each child opposite the call that started it.

import { card, toolsOf } from './card.js'
import { linesAt, namesOf } from './facts.js'
import { asText, brief } from './lane.js'
import { drawLinks } from './links.js'
import { $, el, number, say, svg, text, view, words } from './view.js'

const WINDOW = 150 // so many cards are in the page, unless one asks for more
/** The cards in the page, in order: `{ moment, node }`. */
export let cards = []

/** Brings the stage to a moment, by adding or taking away the cards that lie between. */
export function drawStage() {
  const { run, moment } = view
  const first = Math.max(1, moment - WINDOW - run.earlier + 1)
  const shown = cards.at(-1)?.moment.number ?? 0
  const isNear = cards[0]?.moment.number <= first && first <= shown + 1
  if (!isNear) clearStage()
  const before = cards.at(-1)
  while (cards.at(-1)?.moment.number > moment) cards.pop().node.remove()
  for (let n = (cards.at(-1)?.moment.number ?? first - 1) + 1; n <= moment; n++) {
    cards.push({ moment: run.moments[n - 1], node: place(run.moments[n - 1]) })
  }
  while (cards[0]?.moment.number < first) cards.shift().node.remove()
  // The card that was the moment folds, and the one that is it now opens.
  for (const it of [before, cards.at(-1)]) if (it?.node.isConnected) drawAgain(it)
  cards.at(-1)?.node.setAttribute('aria-current', 'step')
  for (const it of cards) markLeftOut(it)
  drawEarlier(first - 1)
  drawLinks(cards)
}

export function clearStage() {
  cards = []
  $('stage').classList.remove('stepping')
  $('stage').replaceChildren(svg('svg.links', { 'aria-hidden': 'true' }))
  $('stage').dataset.columns = view.run.columns
}

function makeCard(moment) {
  return card(moment, () => {
    const it = cards.find((shown) => shown.moment === moment)
    view.run.isOpen.set(moment.number, it.node.classList.contains('folded'))
    drawAgain(it)
    it.node.querySelector('.fold').focus({ preventScroll: true })
    drawLinks(cards)
  })
}

function drawAgain(it) {
  const { node } = it
  it.node = makeCard(it.moment)
  const current = node.getAttribute('aria-current')
  if (current && it.moment.number === view.moment) {
    it.node.setAttribute('aria-current', current)
  }
  node.replaceWith(it.node)
  markLeftOut(it)
}

/** A message that a compaction has replaced by now is no part of the next request. */
function markLeftOut({ moment, node }) {
  const { lane, index } = moment
  const by = lane.leftOut.get(index)
  if (by === undefined) return
  const isGone = by < linesAt(lane, view.moment)
  node.classList.toggle('left-out', isGone)
  const n = number(lane.counts[by + 1])
  node.title = isGone ? say(words().leftOut, { lane: lane.name, n }) : ''
}

/** Puts a card where it belongs; the boxes around it are made when they are missing. */
function place(moment) {
  const { section, lane, part } = moment
  if (!section.node?.isConnected) addSection(section)
  if (moment.number === 1 && !part) section.left.append(laneHead(lane))
  const node = makeCard(moment)
  if (part) boxOf(part, section).append(node)
  else if (section.rail.isConnected) section.rail.before(node)
  else section.left.append(node)
  return node
}

function addSection(section) {
  const { parts, isSerial, isAlone } = section
  const who = namesOf(parts)
  const rail = parts.every(({ isSummary }) => isSummary)
    ? words().railSummary
    : parts.some(({ isAsync }) => isAsync)
      ? words().railAsync
      : words().rail
  section.rail = el(
    'div.rail',
    { lane: view.run.lanes[0] },
    el('div.rail-note', {}, say(rail, { who })),
  )
  section.left = el('div.left', {}, parts.length > 0 && !isAlone ? section.rail : [])
  section.right = el(`div.right${isSerial ? '.serial' : ''}`, {})
  const alone = isAlone ? el('p.alone', {}, words().alone) : []
  section.node = el('section.section', {}, alone, section.left, section.right)
  $('stage').append(section.node)
}

/** The box of a part's cards: a column of its own, or inside that of its owner. */
function boxOf(part, section) {
  if (part.node?.isConnected) return part.node
  const { lane, host, owner, isSummary } = part
  const told = words().inner[isSummary ? 'summary' : 'task']
  const note =
    host || isSummary ? el('p.inner-note', {}, say(told, { who: owner.name })) : []
  part.node = el(`div.child${host ? '.inner' : ''}`, { lane }, laneHead(lane, part), note)
  if (host) boxOf(host, section).append(part.node)
  else section.right.append(part.node)
  return part.node
}

/** What a lane ran with: its name, its tools and cap, and, folded, its system prompt. */
function laneHead(lane, part) {
  const { tools, agent, worktree, title, file, max_turns: cap, system } = lane.header
  const isNamed = typeof agent === 'string' && lane.name.startsWith(agent)
  const notes = [isNamed ? undefined : agent, title, worktree].filter(Boolean).map(brief)
  if (part?.from > 0) notes.push(words().resumed)
  const noted = notes.map((note) => el('span.note', {}, ` · ${note}`))
  const name = el('h3.lane-name', {}, lane.name, noted)
  if (!tools)
    return el('div.lane-head', { lane }, name, el('div.note', {}, brief(file ?? '')))
  const names = toolsOf(tools)
  const told = names ? say(words().tools, { names }) : words().noTools
  const capped = cap ? ` · ${say(words().cap, { n: brief(cap) })}` : ''
  return el(
    'div.lane-head',
    { lane },
    name,
    el(
      'details',
      {},
      el('summary', {}, told + capped),
      `${words().system}:`,
      text(asText(system ?? '')),
    ),
  )
}

function drawEarlier(hidden) {
  $('earlier')?.remove()
  if (hidden < 1) return
  const label = say(words().earlier, {
    n: number(Math.min(WINDOW, hidden)),
    all: number(hidden),
  })
  const click = () => {
    view.run.earlier += WINDOW
    drawStage()
  }
  $('stage').prepend(
    el('button.earlier', { type: 'button', id: 'earlier', click }, label),
  )
}
