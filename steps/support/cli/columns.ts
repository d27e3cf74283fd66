/** One run in columns: the parent on the left, each child opposite its call. */
import { inNumbers, type Part, partsOf, summedUpBy } from '../base/family.ts'
import { callLine, type LaneFile, type LaneLine, walk } from '../base/lane-file.ts'
import { type Json, toBlocks } from '../base/protocol.ts'
import { fit, widthOf } from '../base/width.ts'
import { wrap } from './wrap.ts'

const MIN_COLUMN = 36

type Run = { lanes: LaneFile[]; parts: Map<Json, Part> }
/** A column's line, what stands left of it, and the part that the call in it started. */
type Cell = { text: string; edge?: string; part?: Part }

/**
 * A run as columns, time running downwards; below them the lanes that no call started:
 * summaries, for one. No line is wider than `width`, 20 at least.
 */
export function renderRun(lanes: LaneFile[], width: number): string[] {
  const [parent, ...others] = lanes
  const parts = partsOf(lanes)
  const cellsOf = (part: Part, width: number) => renderPart(part, { lanes, parts }, width)
  const calls = parent.lines.map(
    ({ content }) => toBlocks(content).filter((block) => parts.has(block)).length,
  )
  const room = Math.max(2, Math.floor((width + 3) / (MIN_COLUMN + 3)))
  const count = Math.min(room, 1 + Math.max(0, ...calls))
  const each = Math.floor((width + 3) / count) - 3
  const lines: string[] = []
  let columns: Cell[][] = [[]]
  const flush = () => {
    const rows = Math.max(...columns.map(({ length }) => length))
    const cellsIn = (row: number) => columns.map((column) => column[row])
    for (let row = 0; row < rows; row++) lines.push(draw(cellsIn(row), each))
    columns = [[]]
  }
  for (const cells of cellsOf(wholeOf(parent), each)) {
    for (const cell of cells) {
      if (cell.part && columns.length === count) flush() // no room beside its siblings
      const above = Array(columns[0].length)
      if (cell.part) columns.push([...above, ...tied(cellsOf(cell.part, each).flat())])
      columns[0].push(cell)
    }
    flush() // what follows a call stands below all that the call started
  }
  const started = [...parts.values()].map(({ lane }) => lane)
  for (const lane of others.filter((lane) => !started.includes(lane))) {
    const part = wholeOf(lane)
    const owner = summedUpBy(lane)
    // A summary lane begins with copies of its owner's messages.
    if (owner) part.from = lane.lines.findLastIndex(({ role }) => role === 'user')
    const note = owner ? `Sums up ${owner}:` : 'Started by no call that is seen here:'
    lines.push('', ...wrap(note, width, 2))
    columns = [cellsOf(part, width).flat()]
    flush()
  }
  return lines
}

const wholeOf = (lane: LaneFile): Part => ({ lane, from: 0, to: lane.lines.length })

/** A child's lines, with an edge that is tied to the call on their left. */
function tied(cells: Cell[]): Cell[] {
  const edges = ['─┬ ', ...cells.slice(2).map(() => ' │ '), ' └ ']
  return cells.map((cell, i) => ({ ...cell, edge: edges[i] }))
}

/** The lines of the heading, then of each message (number, role, content) and event. */
function renderPart({ lane, from, to }: Part, run: Run, width: number): Cell[][] {
  const rows = (lead: string, text: string, max: number, part?: Part) =>
    wrap(text, width - 2 - lead.length, max).map((row, i): Cell => {
      return { text: `  ${i > 0 ? ' '.repeat(lead.length) : lead}${row}`, part }
    })
  const numbers = new Map<object | undefined, number>() // as in the file
  const shown: Cell[][] = []
  for (const { line, before, after } of walk(lane.lines)) {
    const { role, level, content } = line
    if (!role) {
      const text = eventLine(line, (n) => numbers.get(before[n - 1]) ?? n)
      shown.push(rows(level === 'info' ? '· ' : '! ', text, 3))
      continue
    }
    const added = after.findLast((message) => !numbers.has(message))
    numbers.set(added, numbers.size + 1)
    const cells = toBlocks(content).flatMap((block) => {
      const { type, name, input, is_error } = block
      if (type === 'text') return rows('', block.text, 3)
      if (type === 'tool_use')
        return rows('→ ', callLine({ name, input }), 1, run.parts.get(block))
      if (type !== 'tool_result') return rows('', `[${type}]`, 1)
      const texts = toBlocks(block.content).map(({ type, text }) => text ?? `[${type}]`)
      const said = `${is_error ? '✗ ' : ''}${texts.join('\n').trimStart()}`
      return rows('← ', `${block.tool_use_id} ${said}`, 3)
    })
    shown.push([{ text: fit(`${numbers.size} ${role}`, width) }, ...cells])
  }
  const more = from > 0 && !summedUpBy(lane) ? ', resumed' : ''
  const title = `${lane.name}${more}: ${inNumbers(lane, run.lanes).join('\n')}`
  const heading = wrap(title, width, 9).map((text) => ({ text }))
  return [heading, ...shown.slice(from, to)]
}

/** An event in a few words; `number` makes a place in the history one in the file. */
function eventLine(line: LaneLine, number: (n: number) => number): string {
  const { level: _, event, status, error, message, ...rest } = line
  if (event === 'compacted') {
    const gone = line.replaced.map(number).sort((a: number, b: number) => a - b)
    const range = `${gone[0]}–${gone.at(-1)}`
    return `${event}: the next message replaces ${range}, summed up in ${line.by}`
  }
  const more = Object.keys(rest).length > 0 && JSON.stringify(rest)
  const parts = [event, status, error?.type, error?.message ?? message, more]
  return parts.filter(Boolean).join(' ')
}

function draw(cells: (Cell | undefined)[], each: number): string {
  const row = cells.map((cell, column) => {
    const { text = '', edge = column > 0 ? '   ' : '' } = cell ?? {}
    const gap = each - widthOf(text)
    const isTied = column === 0 && cells[1]?.edge?.startsWith('─') && gap > 0
    return edge + text + (isTied ? ' '.padEnd(gap, '─') : ' '.repeat(Math.max(0, gap)))
  })
  return row.join('').trimEnd()
}
