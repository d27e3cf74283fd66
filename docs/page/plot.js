// The plot: how large each request of each lane was, and what the parent's would have
// been as one history.

import { largest } from './lane.js'
import { $, number, say, sized, svg, view, words } from './view.js'

const EDGE = { left: 14, right: 12, top: 16, bottom: 31 }
const DASHES = ['', '7 3', '2 3', '9 3 2 3', '12 4', '4 2 1 2']
/** Six colours come with six dashes: the next six lanes have others. */
const dashOf = (i) => DASHES[(i + Math.floor(i / 6)) % 6]
/** x and y of a moment and a size, and the moment at an x; set by drawPlot. */
export let scale

/** `behind` is the run that this one is compared with, if any. */
export function drawPlot(behind) {
  const { run } = view
  const { width, height } = $('plot').getBoundingClientRect()
  const [right, bottom] = [Math.max(200, width) - EDGE.right, height - EDGE.bottom]
  const most = Math.max(1, run.moments.length, behind?.moments.length ?? 0)
  const lines = plotted(run, behind)
  const top = largest(lines.flatMap(({ points }) => points.map(({ size }) => size))) || 1
  const sizes = ticksUpTo(top, height > 150 ? 4 : 3)
  const left = EDGE.left + 16 + 6.5 * number(sizes.at(-1)).length
  const wide = (right - left) / most
  scale = {
    x: (moment) => left + (moment - 0.5) * wide,
    y: (size) => bottom - (size / top) * (bottom - EDGE.top),
    momentAt: (x) => Math.round((x - left) / wide + 0.5),
  }
  const { x, y } = scale
  const unit = words().axisY[run.unit]
  const middle = (bottom + EDGE.top) / 2
  $('plot').setAttribute('viewBox', `0 0 ${right + EDGE.right} ${height}`)
  $('plot').setAttribute('aria-label', lines.map(lineLabel).join('; '))
  $('plot').replaceChildren(
    ...sizes.flatMap((size) => [
      svg('line.grid', { x1: left, x2: right, y1: y(size), y2: y(size) }),
      svg('text', { x: left - 6, y: y(size) + 4, 'text-anchor': 'end' }, number(size)),
    ]),
    svg(
      'text.axis',
      { transform: `translate(11 ${middle}) rotate(-90)`, 'text-anchor': 'middle' },
      unit,
    ),
    ...ticksUpTo(most, wide > 22 ? most : 8)
      .slice(1)
      .map((n) =>
        svg('text', { x: x(n), y: bottom + 14, 'text-anchor': 'middle' }, number(n)),
      ),
    svg(
      'text.axis',
      { x: (left + right) / 2, y: height - 3, 'text-anchor': 'middle' },
      words().axisX,
    ),
    ...lines.toReversed().flatMap(drawLine),
    svg('rect.veil', { y: 0, height: bottom + 2 }),
    ...labelsOf(lines, left, right, bottom),
    svg('line.now', { y1: 0, y2: bottom }),
  )
  drawNow()
}

/** What is drawn: the parent as one history, the lanes, and the run to compare with. */
function plotted(run, behind) {
  const [parent] = run.lanes
  const at =
    (lane) =>
    ({ index, size }) => ({ at: lane.at[index], size })
  const end = run.moments.length
  const lines = run.lanes.map((lane) => ({
    kind: lane === parent ? 'of-parent' : 'of-child',
    name: lane.name,
    lane,
    end: lane === parent ? end : 0,
    points: lane.requests.map(at(lane)),
  }))
  if (run.asOne.some(({ size }, i) => size > parent.requests[i].size)) {
    const points = run.asOne.map(at(parent))
    lines.splice(1, 0, { kind: 'of-one', name: words().asOne, lane: parent, end, points })
  }
  for (const lane of behind?.lanes ?? []) {
    const name = lane === behind.lanes[0] ? behind.label : `${behind.label} ${lane.name}`
    lines.push({
      kind: 'of-other',
      name,
      lane,
      end: 0,
      points: lane.requests.map(at(lane)),
    })
  }
  return lines.filter(({ points }) => points.length > 0)
}

function lineLabel({ name, points }) {
  const [from, to] = [points[0], points.at(-1)].map(({ size }) => sized(size))
  return say(words().plotLabel, { lane: name, n: points.length, from, to })
}

/** Steps: a size holds until the next request; the parent's, to the end of the run. */
function drawLine({ kind, name, lane, points, end }) {
  const { x, y } = scale
  const last = points.at(-1)
  const steps = points.map(({ at, size }) => `H${x(at)}V${y(size)}`).join('')
  const d = `M${x(points[0].at)} ${y(points[0].size)}${steps}H${x(Math.max(end, last.at))}`
  const paint = kind === 'of-other' ? undefined : lane
  const own = lane.isSummary ? '2 2' : dashOf(lane.look - 1)
  const dash = kind === 'of-child' ? own : undefined
  const dots = kind === 'of-one' ? [] : points.length > 120 ? [last] : points
  return [
    svg(`path.curve.${kind}`, { d, lane: paint, 'stroke-dasharray': dash || undefined }),
    ...dots.map((point) => {
      const title = svg('title', {}, `${name}: ${sized(point.size)}`)
      const told = { 'data-lane': name, 'data-size': point.size, lane: paint }
      const look = kind === 'of-child' ? lane.look % 4 : 0
      const place = `translate(${x(point.at)} ${y(point.size)})`
      return svg(`path.dot.${kind}`, { d: MARKS[look], transform: place, ...told }, title)
    }),
  ]
}

/** A disc, a square, a triangle, a diamond. */
const MARKS = [
  'M-3.2 0a3.2 3.2 0 1 0 6.4 0a3.2 3.2 0 1 0 -6.4 0Z',
  'M-3 -3H3V3H-3Z',
  'M0 -4L3.8 3H-3.8Z',
  'M0 -4.4L4.4 0L0 4.4L-4.4 0Z',
]

/** A name at the end of each line; where two would overlap, one moves away. */
function labelsOf(lines, left, right, bottom) {
  const { x, y } = scale
  const placed = []
  const shown = lines.length > 9 ? lines.filter(({ kind }) => kind !== 'of-child') : lines
  for (const { kind, name, lane, points, end } of shown) {
    // A rising line leaves room above its middle; that of the other run may have it.
    const last = points.at(kind === 'of-other' ? Math.floor(points.length / 2) : -1)
    const told =
      kind === 'of-parent' || kind === 'of-one' ? `${name} ${number(last.size)}` : name
    const width = 4 + [...told].reduce((sum, it) => sum + (it > '\u2e80' ? 11.5 : 6.3), 0)
    const to = Math.min(right, Math.max(x(Math.max(end, last.at)), left + width))
    const box = {
      from: to - width,
      to,
      told,
      kind,
      lane: kind === 'of-other' ? undefined : lane,
    }
    const free = (at) =>
      at > 9 &&
      at < bottom - 1 &&
      placed.every(
        ({ from, to, at: other }) =>
          box.to < from || box.from > to || Math.abs(at - other) > 11,
      )
    const wish = y(last.size) - 6
    const tries = [0, 17, -11, 28, -22, 39, -33, 50].map((shift) => wish + shift)
    box.at = tries.find(free) ?? wish
    placed.push(box)
  }
  return placed.map(({ to, at, told, kind, lane }) =>
    svg(`text.name.${kind}`, { x: to, y: at, 'text-anchor': 'end', lane }, told),
  )
}

/** Round numbers from 0 on, at most about `count` of them. */
function ticksUpTo(top, count) {
  const power = 10 ** Math.floor(Math.log10(Math.max(1, top / count)))
  const step = [1, 2, 2.5, 5, 10].find((it) => it * power >= top / count) * power
  return [...Array(Math.floor(top / step) + 1).keys()].map((i) => Math.round(i * step))
}

/** Where in the plot the moment is; what is still to come lies under a veil. */
export function drawNow() {
  const { moment, run } = view
  const { width } = $('plot').viewBox.baseVal
  const at = scale.x(moment) + (moment === run.moments.length ? 6 : 0)
  const veil = $('plot').querySelector('.veil')
  veil.setAttribute('x', at)
  veil.setAttribute('width', Math.max(0, width - at))
  for (const name of ['x1', 'x2']) $('plot').querySelector('.now').setAttribute(name, at)
}
