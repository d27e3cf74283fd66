/** `npm run view 04` shows a run's lanes in columns, `npm run view 02 04` compares. */
import { existsSync, readdirSync, realpathSync } from 'node:fs'
import { dirname, join, parse, relative } from 'node:path'
import process from 'node:process'
import type { LaneFile, LaneLine } from '../base/lane-file.ts'
import { callLine, readFolder, requestSizes } from '../base/lane-file.ts'
import { widthOf, wrap } from '../base/width.ts'
import { labelsOf, renderComparison } from './compare.ts'

const ROOT = join(import.meta.dirname, '../../..')
const RECORDED = join(ROOT, 'logs/recorded')
const MIN_COLUMN = 36
const [BOLD, DIM, RED, GREEN, CYAN] = [1, 2, 31, 32, 36]

/** The lines of a lane that one call brought about: all, unless another resumed it. */
type Part = { lane: LaneFile; from: number; to: number }
/** A column's line, what stands left of it, and the part that the call in it started. */
type Cell = { text: string; colour?: number; edge?: string; part?: Part }
type Parts = Map<object, Part>

/**
 * A run as columns: the parent on the left, each child opposite the `task` call that
 * started it, time running downwards. No line is wider than `width`, 20 at least.
 */
export function renderFolder(lanes: LaneFile[], width: number, colour = false): string[] {
  const [parent, ...children] = lanes
  const { started, others } = findParts(parent, children)
  const isCall = (block: object) => started.has(block)
  const calls = parent.lines.map((line) => blocksOf(line).filter(isCall).length)
  const room = Math.max(2, Math.floor((width + 3) / (MIN_COLUMN + 3)))
  const count = Math.min(room, 1 + Math.max(0, ...calls))
  const each = Math.floor((width + 3) / count) - 3
  const lines: string[] = []
  let columns: Cell[][] = [[]]
  const flush = () => {
    const height = Math.max(...columns.map(({ length }) => length))
    for (let row = 0; row < height; row++) {
      const cells = columns.map((column) => column[row])
      lines.push(draw(cells, each, colour))
    }
    columns = [[]]
  }
  for (const cells of cellsOf(wholeOf(parent), each, started)) {
    for (const cell of cells) {
      if (cell.part && columns.length === count) flush() // no room beside its siblings
      if (cell.part) columns.push([...Array(columns[0].length), ...tied(cell.part, each)])
      columns[0].push(cell)
    }
    flush() // what follows a call stands below all that the call started
  }
  for (const lane of others) {
    const note = { text: 'Started by no task call that is seen here:', colour: DIM }
    columns = [[{ text: '' }, note, ...cellsOf(wholeOf(lane), width).flat()]]
    flush()
  }
  return lines
}

/** Which `task` call started, or resumed, which child; `others` were started by none. */
function findParts(parent: LaneFile, children: LaneFile[]) {
  const started: Parts = new Map()
  const latest = new Map<LaneFile, Part>()
  for (const block of parent.lines.flatMap(blocksOf)) {
    if (block.type !== 'tool_use' || block.name !== 'task') continue
    const { prompt, resume } = Object(block.input)
    const isMeant = (lane: LaneFile) =>
      resume
        ? lane.name === resume && latest.has(lane)
        : !latest.has(lane) && promptOf(lane.lines.find(({ role }) => role)) === prompt
    const lane = children.find(isMeant)
    if (!lane) continue
    const before = latest.get(lane)
    const isNext = (line: LaneLine, i: number) =>
      i > (before?.from ?? -1) && promptOf(line)?.includes(prompt)
    const part = { ...wholeOf(lane), from: before ? lane.lines.findIndex(isNext) : 0 }
    if (part.from < 0) continue
    if (before) before.to = part.from
    latest.set(lane, part)
    started.set(block, part)
  }
  return { started, others: children.filter((lane) => !latest.has(lane)) }
}

const wholeOf = (lane: LaneFile): Part => ({ lane, from: 0, to: lane.lines.length })

/** The text of a user message that holds no tool results. */
function promptOf(line: LaneLine = {}): string | undefined {
  const isPrompt = line.role === 'user' && blocksOf(line)[0]?.type !== 'tool_result'
  return isPrompt ? textOf(line) : undefined
}

const blocksOf = ({ content = [] }: LaneLine) =>
  typeof content === 'string' ? [{ type: 'text' as const, text: content }] : content

/** All that a message, or a tool's result, says in words. */
const textOf = (holder: LaneLine) =>
  blocksOf(holder)
    .map((block) => ('text' in block ? block.text : `[${block.type}]`))
    .join('\n')

/** A child's part, with an edge that is tied to the call on its left. */
function tied(part: Part, width: number): Cell[] {
  const cells = cellsOf(part, width).flat()
  const edges = ['─┬ ', ...cells.slice(2).map(() => ' │ '), ' └ ']
  return cells.map((cell, i) => ({ ...cell, edge: edges[i] }))
}

/** The lines of the heading, then of each message (number, role, content) and event. */
function cellsOf({ lane, from, to }: Part, width: number, started?: Parts): Cell[][] {
  const rows = (lead: string, text: string, max: number, colour = 0, part?: Part) =>
    wrap(text, width - 2 - lead.length, max).map((row, i): Cell => {
      return { text: `  ${i > 0 ? ' '.repeat(lead.length) : lead}${row}`, colour, part }
    })
  let position = lane.lines.slice(0, from).filter(({ role }) => role).length
  const messages = lane.lines.slice(from, to).map((line) => {
    const { level: _, role, event, status, error, message, ...rest } = line
    if (!role) {
      const more = Object.keys(rest).length > 0 && JSON.stringify(rest)
      const parts = [event, status, error?.type, error?.message ?? message, more]
      return rows('! ', parts.filter(Boolean).join(' '), 2, RED)
    }
    const shown = blocksOf(line).flatMap((block) => {
      if (block.type === 'text') return rows('', block.text, 3)
      const part = started?.get(block)
      if (block.type === 'tool_use') return rows('→ ', callLine(block), 1, 0, part)
      if (block.type !== 'tool_result') return rows('', `[${block.type}]`, 1, DIM)
      const text = textOf(block as LaneLine).trimStart()
      const mark = block.is_error ? '✗ ' : ''
      return rows('← ', `${block.tool_use_id} ${mark}${text}`, 3, mark ? RED : DIM)
    })
    const colour = role === 'user' ? GREEN : CYAN
    const [text] = wrap(`${++position} ${role}`, width, 1)
    return [{ text, colour }, ...shown]
  })
  const count = lane.messages.length
  const title = `${lane.name}${from > 0 ? ', resumed' : ''}: ${count} message`
  const largest = requestSizes(lane).at(-1) ?? 0
  const size = `largest request ${largest.toLocaleString('en-US')} bytes`
  const heading = wrap(`${title}${count === 1 ? '' : 's'}\n${size}`, width, 4)
  return [heading.map((text) => ({ text, colour: BOLD })), ...messages]
}

/** One row of all columns; a line leads from a call to the child beside it. */
function draw(cells: (Cell | undefined)[], each: number, colour: boolean): string {
  let line = ''
  let at = 0
  for (const [column, cell] of cells.entries()) {
    if (!cell) continue
    const { text, edge = '' } = cell
    const gap = Math.max(0, column * (each + 3) - 3 - at)
    const isTied = column === 1 && edge.startsWith('─') && gap > 0
    line += isTied ? ` ${'─'.repeat(gap - 1)}` : ' '.repeat(gap)
    line += edge + (colour && cell.colour ? `\x1b[${cell.colour}m${text}\x1b[0m` : text)
    if (column < cells.length - 1) at += gap + edge.length + widthOf(text)
  }
  return line
}

/** Reads the run that a step's number or name, or a path, stands for. */
function openRun(argument: string) {
  const number = `${argument.padStart(2, '0')}-`
  const step = readdirSync(join(ROOT, 'steps')).find((file) => file.startsWith(number))
  const name = step ? parse(step).name : argument
  const own = [join(ROOT, 'logs', name), join(RECORDED, name)]
  const given = argument.endsWith('.log') ? dirname(argument) : argument
  const places = [...own.map((path) => relative('', path)), given]
  const folder = places.find((path) => existsSync(join(path, 'parent.log')))
  if (!folder) throw new Error(`There is no run ${JSON.stringify(argument)}.\n${usage()}`)
  const lanes = readFolder(folder)
  const { mode, model } = lanes[0].header
  return { lanes, where: `${folder} (${mode}, ${model})` }
}

const usage = () => `Usage: npm run view 04       one run in columns
       npm run view 02 04    two runs compared
A run is a step's number or name (its last offline run, else the recording), or a folder
that holds a parent.log.
Recorded: ${readdirSync(RECORDED).sort().join(', ')}`

function main(names: string[]): string[] {
  if (names.length !== 1 && names.length !== 2) throw new Error(usage())
  const { stdout, env } = process
  const width = Math.max(20, Number(stdout.columns || env.COLUMNS) || 80)
  const [a, b] = names.map(openRun)
  const colour = stdout.isTTY && !env.NO_COLOR
  if (!b) return [...wrap(a.where, width, 9), '', ...renderFolder(a.lanes, width, colour)]
  const [one, two] = labelsOf(a.lanes, b.lanes)
  const where = wrap(`${one}: ${a.where}\n${two}: ${b.where}`, width, 9)
  return [...where, '', ...renderComparison(a.lanes, b.lanes, width)]
}

if (process.argv[1] && realpathSync(process.argv[1]) === import.meta.filename) {
  // `npm run view 04 | head` closes the pipe early, and that is no fault.
  process.stdout.on('error', (error: NodeJS.ErrnoException) => {
    if (error.code === 'EPIPE') return
    process.stderr.write(`${error.message}\n`)
    process.exitCode = 1
  })
  try {
    process.stdout.write(`${main(process.argv.slice(2)).join('\n')}\n`)
  } catch (error) {
    process.stderr.write(`${(error as Error).message}\n`)
    process.exitCode = 1
  }
}
