// The lines from a call to its child, and from a last text back to its result.

import { drawn } from './card.js'
import { isFailed, lastTextOf } from './facts.js'
import { $, svg } from './view.js'

const isNarrow = matchMedia('(max-width: 699px)')

export function drawLinks(cards) {
  const stage = $('stage')
  const origin = stage.getBoundingClientRect()
  const boxOf = (node) => {
    const { left, right, top, bottom } = node.getBoundingClientRect()
    return {
      left: left - origin.left,
      right: right - origin.left,
      top: top - origin.top,
      bottom: bottom - origin.top,
    }
  }
  const shown = new Set(cards.flatMap(({ moment }) => moment.section.parts))
  const cardOf = (lane, index) => document.getElementById(`m${lane.at[index]}`)
  const links = [...shown].flatMap((part, i) => {
    const { lane, owner, at, returned, node, isAlone } = part
    if (!node?.isConnected || isAlone) return []
    const from = cardOf(owner, at)
    const last = cardOf(lane, lastTextOf(part))
    const to = returned === undefined ? null : cardOf(owner, returned)
    const start = ends(part.call, from, boxOf)
    const end = ends(part, to, boxOf)
    const back = `.back${isFailed(part) ? '.failed' : ''}`
    return [
      from ? drawLink(lane, wayOut(node, start, boxOf, i % 4), '') : [],
      last && to
        ? drawLink(lane, wayBack(node, boxOf(last), end, boxOf, i % 4), back)
        : [],
    ]
  })
  stage.querySelector('.links')?.replaceChildren(...links.flat(2))
}

/** The card at one end of a line, and the block in it, where that is drawn. */
function ends(key, card, boxOf) {
  if (!card) return undefined
  const inner = drawn.get(key)
  const isIn = inner && card.contains(inner)
  return { card: boxOf(card), block: boxOf(isIn ? inner : card) }
}

/** From the card with the call, through the gutter, to the head of the child's column. */
function wayOut(node, { card, block }, boxOf, i) {
  const head = boxOf(node)
  const area = boxOf(node.parentElement)
  const to = head.top + 12
  if (isNarrow.matches) {
    const x = head.left - 12
    return [
      [x, card.bottom],
      [x, to],
      [head.left - 3, to],
    ]
  }
  const y = block.top + 10
  const gutter = (card.right + area.left) / 2 - 10 + 6 * i
  const start = [
    [card.right, y],
    [gutter, y],
  ]
  if (head.left - area.left < 9) return [...start, [gutter, to], [head.left - 5, to]]
  const above = head.top - 12 // past its siblings
  const x = head.left + 14
  return [...start, [gutter, above], [x, above], [x, head.top]]
}

/** From the last text down and below the column, through the gutter, to the result. */
function wayBack(node, last, { card, block }, boxOf, i) {
  const column = boxOf(node)
  if (isNarrow.matches) {
    const x = column.left - 12
    const y = (last.top + last.bottom) / 2
    return [
      [last.left, y],
      [x, y],
      [x, card.top - 2],
    ]
  }
  const x = (last.left + last.right) / 2
  const y = (block.top + block.bottom) / 2
  const below = column.bottom + 9 + 4 * i
  const gutter = (card.right + boxOf(node.parentElement).left) / 2 + 6 * i
  return [
    [x, last.bottom],
    [x, below],
    [gutter, below],
    [gutter, y],
    [card.right + 3, y],
  ]
}

/** A way with rounded corners, and an arrow's tip at its end. */
function drawLink(lane, way, kind) {
  const points = way.filter((point, i) => i === 0 || distance(point, way[i - 1]) > 0.5)
  if (points.length < 2) return []
  const [before, end] = points.slice(-2)
  const corners = points.slice(1, -1).map((corner, i) => {
    const [last, next] = [points[i], points[i + 2]]
    const r = Math.min(12, distance(corner, last) / 2, distance(corner, next) / 2)
    return `L${towards(corner, last, r)}Q${corner} ${towards(corner, next, r)}`
  })
  const d = `M${points[0]}${corners.join('')}L${towards(end, before, 6)}`
  const [x, y] = towards([0, 0], [end[0] - before[0], end[1] - before[1]], 1)
  const [footX, footY] = towards(end, before, 10)
  const sides = `L${footX - 5 * y} ${footY + 5 * x}L${footX + 5 * y} ${footY - 5 * x}`
  return [
    svg(`path.link${kind}`, { d, lane }),
    svg(`path.tip${kind}`, { d: `M${end}${sides}Z`, lane }),
  ]
}

const distance = (a, b) => Math.hypot(a[0] - b[0], a[1] - b[1])
/** The point that lies so far from a in the direction of b. */
const towards = (a, b, length) => {
  const share = length / (distance(a, b) || 1)
  return [a[0] + (b[0] - a[0]) * share, a[1] + (b[1] - a[1]) * share]
}
