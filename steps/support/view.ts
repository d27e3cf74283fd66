/** `npm run view 04` shows a run's lanes in columns, `npm run view 02 04` compares two. */
import { existsSync, readdirSync, realpathSync } from 'node:fs'
import { join, parse, relative } from 'node:path'
import process from 'node:process'
import type { Usage } from '@anthropic-ai/sdk/resources/messages'
import type { LaneFile, LaneLine } from './lane-file.ts'
import { callLine, readFolder, requestSizes } from './lane-file.ts'

const ROOT = join(import.meta.dirname, '../..')
const RECORDED = join(ROOT, 'logs/recorded')
const MIN_COLUMN = 36
const [BOLD, DIM, RED, GREEN, CYAN] = [1, 2, 31, 32, 36]

/** A child's lines from one prompt up to the next that a task call gave it. */
type Part = { lane: LaneFile; from: number; to: number; prompt: string }
/** A column's line, what stands left of it, and the part that the call in it started. */
type Cell = { text: string; colour?: number; edge?: string; part?: Part }

/**
 * A run as columns: the parent on the left, each child opposite the `task` call that
 * started it, time running downwards. No line is wider than `width`, 20 at least.
 */
export function renderFolder(lanes: LaneFile[], width: number, colour = false): string[] {
  const [parent, ...children] = lanes
  const { started, others } = findParts(parent, children)
  const calls = parent.lines.map(
    (line) => blocksOf(line).filter((b) => started.has(b)).length,
  )
  const room = Math.max(2, Math.floor((width + 3) / (MIN_COLUMN + 3)))
  const count = Math.min(room, 1 + largest(calls))
  const each = Math.floor((width + 3) / count) - 3
  const lines: string[] = []
  let columns: Cell[][] = [[]]
  const flush = () => {
    const rows = [...Array(largest(columns.map(({ length }) => length))).keys()]
    lines.push(
      ...rows.map((row) =>
        draw(
          columns.map((cells) => cells[row]),
          each,
          colour,
        ),
      ),
    )
    columns = [[]]
  }
  const whole = { lane: parent, from: 0, to: parent.lines.length, prompt: '' }
  for (const cells of [heading(whole, each), ...cellsOf(whole, each, started)]) {
    for (const cell of cells) {
      if (cell.part && columns.length === count) flush() // no room beside its siblings
      if (cell.part)
        columns.push([...Array(columns[0].length), ...opposite(cell.part, each)])
      columns[0].push(cell)
    }
    flush() // what follows a call stands below all that the call started
  }
  for (const part of others) {
    const title = { text: 'Started by no task call that is seen here:', colour: DIM }
    columns = [
      [{ text: '' }, title, ...heading(part, width), ...cellsOf(part, width).flat()],
    ]
    flush()
  }
  return lines
}

/** Which `task` call started which part of a child; `others` are the parts without one. */
function findParts(parent: LaneFile, children: LaneFile[]) {
  const parts = children.flatMap(splitAtPrompts)
  const free = new Set(parts)
  const started = new Map<object, Part>()
  for (const block of parent.lines.flatMap(blocksOf)) {
    if (block.type !== 'tool_use' || block.name !== 'task') continue
    const { prompt, resume } = Object(block.input)
    const fits = ({ lane, from, prompt: given }: Part) =>
      resume
        ? from > 0 && lane.name === resume && given.includes(prompt)
        : from === 0 && given === prompt
    const part = parts.find((part) => free.has(part) && fits(part))
    if (part && free.delete(part)) started.set(block, part)
  }
  for (const [i, part] of [...parts.entries()].reverse()) {
    if (part.from > 0 && free.delete(part)) parts[i - 1].to = part.to
  }
  return { started, others: [...free] }
}

function splitAtPrompts(lane: LaneFile): Part[] {
  const prompts = lane.lines.flatMap((line, at) => {
    const isPrompt = line.role === 'user' && blocksOf(line)[0]?.type !== 'tool_result'
    return isPrompt ? [{ at, prompt: textOf(line.content) }] : []
  })
  if (prompts.length === 0) prompts.push({ at: 0, prompt: '' })
  return prompts.map(({ at, prompt }, i) => {
    return { lane, from: i && at, to: prompts[i + 1]?.at ?? lane.lines.length, prompt }
  })
}

function blocksOf({ content = [] }: LaneLine) {
  return typeof content === 'string'
    ? [{ type: 'text' as const, text: content }]
    : content
}

function textOf(content: string | { type: string; text?: string }[] = []): string {
  if (typeof content === 'string') return content
  return content.map(({ type, text }) => text ?? `[${type}]`).join('\n')
}

function heading({ lane, from }: Part, width: number): Cell[] {
  const count = lane.messages.length
  const title = `${lane.name}${from > 0 ? ', resumed' : ''}: ${count} message`
  const size = `largest request ${number(largest(requestSizes(lane)))} bytes`
  const rows = wrap(`${title}${count === 1 ? '' : 's'}\n${size}`, width, 4)
  return rows.map((text) => ({ text, colour: BOLD }))
}

/** A child's part under its heading, tied to the call on its left. */
function opposite(part: Part, width: number): Cell[] {
  const cells = [...heading(part, width), ...cellsOf(part, width).flat()]
  const edges = ['─┬ ', ...cells.slice(2).map(() => ' │ '), ' └ ']
  return cells.map((cell, i) => ({ ...cell, edge: edges[i] }))
}

/** The lines of each message and event: number and role, then what it holds. */
function cellsOf({ lane, from, to }: Part, width: number, started?: Map<object, Part>) {
  const rows = (text: string, colour = 0, max = 1, part?: Part): Cell[] =>
    wrap(text, width - 2, max).map((row) => ({ text: `  ${row}`, colour, part }))
  let count = lane.lines.slice(0, from).filter(({ role }) => role).length
  return lane.lines.slice(from, to).map((line): Cell[] => {
    const { level: _, role, event, status, error, ...rest } = line
    if (!role) {
      const more =
        error?.message ?? (Object.keys(rest).length ? JSON.stringify(rest) : '')
      const text = ['!', event, status, error?.type, more].filter(Boolean).join(' ')
      return rows(text, RED, 2)
    }
    const title = { text: `${++count} ${role}`, colour: role === 'user' ? GREEN : CYAN }
    const shown = blocksOf(line).flatMap((block) => {
      if (block.type === 'text') return rows(block.text, 0, 3)
      if (block.type === 'tool_use')
        return rows(`→ ${callLine(block)}`, 0, 1, started?.get(block))
      if (block.type !== 'tool_result') return rows(`[${block.type}]`, DIM)
      const mark = block.is_error ? '✗ ' : ''
      const text = textOf(block.content as []).trimStart()
      return rows(`← ${block.tool_use_id} ${mark}${text}`, mark ? RED : DIM)
    })
    return [title, ...shown]
  })
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
    at += gap + edge.length + widthOf(text)
  }
  return line
}

/**
 * Two runs lane by lane, in numbers and bars; tokens only where an API counted them. The
 * last line says what it comes to.
 */
export function renderComparison(a: LaneFile[], b: LaneFile[], width: number): string[] {
  const [one, two] = labels(a, b)
  const names = [...new Set([...a, ...b].map(({ name }) => name)), 'all lanes']
  const rows = names.flatMap((name) => {
    const pick = (run: LaneFile[]) =>
      run.filter((lane) => [lane.name, 'all lanes'].includes(name))
    const both = [
      { label: one, lanes: pick(a) },
      { label: two, lanes: pick(b) },
    ]
    const there = both.filter(({ lanes }) => lanes.length > 0)
    return there.map(({ label, lanes }) => ({
      title: `${label} ${name}`,
      sums: measure(lanes),
    }))
  })
  const charts = [...new Set(rows.flatMap(({ sums }) => Object.keys(sums)))].flatMap(
    (name) => {
      const values = rows.map(({ sums }) => sums[name] ?? 0)
      const digits = number(largest(values)).length
      const lines = rows.map(({ title, sums }, i) => {
        const text = name in sums ? number(values[i]) : '–'
        const share = values[i] / (largest(values) || 1)
        const bar = '█'.repeat(Math.ceil(share * Math.max(0, width - digits - 18)))
        return `  ${title.padEnd(12)}  ${text.padStart(digits)}  ${bar}`
      })
      return [...[name, ...lines].flatMap((line) => wrap(line, width, 1)), '']
    },
  )
  return [...charts, ...wrap(conclusion(a, b), width, 9)]
}

function conclusion(a: LaneFile[], b: LaneFile[]): string {
  const [one, two] = labels(a, b)
  const sent = (lanes: LaneFile[]) => total(lanes.flatMap(requestSizes))
  if (sent([a[0]]) === 0) return `${one}'s parent has sent nothing to compare with.`
  const percent = (now: LaneFile[], before: LaneFile[]) =>
    `${Math.round((100 * sent(now)) / sent(before))} %`
  const parents = `sends ${percent([b[0]], [a[0]])} of what ${one}'s parent sends`
  const all = `all lanes of ${two} send ${percent(b, a)}`
  const base = a.length > 1 ? ` of what all lanes of ${one} send` : ''
  return `${two}'s parent ${parents}; ${all}${base}.`
}

/** The sums of lanes, by their titles. */
function measure(lanes: LaneFile[]): Record<string, number> {
  const sizes = lanes.flatMap(requestSizes)
  const usages = lanes.flatMap(({ lines }) => lines.flatMap(({ usage }) => usage ?? []))
  const count = (field: keyof Usage) =>
    total(usages.map((usage) => Number(usage[field] ?? 0)))
  const cached = count('cache_creation_input_tokens') + count('cache_read_input_tokens')
  return {
    messages: total(lanes.map(({ messages }) => messages.length)),
    requests: sizes.length,
    'bytes of the largest request': largest(sizes),
    'bytes of all requests': total(sizes),
    ...(usages.length > 0 && { 'tokens in': count('input_tokens') + cached }),
    ...(usages.length > 0 && { 'tokens out': count('output_tokens') }),
  }
}

/** Short names for two runs: their steps' numbers if these differ, else A and B. */
function labels(a: LaneFile[], b: LaneFile[]): string[] {
  const numbers = [a, b].map(([{ header }]) => /^\d+/.exec(header.step)?.[0] ?? '')
  return new Set(['', ...numbers]).size === 3 ? numbers : ['A', 'B']
}

const total = (values: number[]) => values.reduce((a, b) => a + b, 0)
const largest = (values: number[]) => values.reduce((a, b) => Math.max(a, b), 0)
const number = (value: number) => value.toLocaleString('en-US')

// What a terminal makes of characters: some take two columns, some none, some steer it.
const NONE = /[\p{M}\p{Default_Ignorable_Code_Point}\u1160-\u11ff]/u
const EMOJI = /\p{Emoji_Presentation}|\ufe0f/u
const UNSAFE = /[\p{Cc}\p{Cs}\xad\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]/gu
const WIDE = [
  0x1100, 0x1160, 0x2329, 0x232b, 0x2e80, 0x303f, 0x3041, 0xa4d0, 0xa960, 0xa980, 0xac00,
  0xd7a4, 0xf900, 0xfb00, 0xfe10, 0xfe1a, 0xfe30, 0xfe70, 0xff01, 0xff61, 0xffe0, 0xffe7,
  0x16fe0, 0x1b300, 0x1f200, 0x1f300, 0x20000, 0x3fffe,
] // where wide characters begin, end, begin, …
const segmenter = new Intl.Segmenter('en')

/** How many columns of a terminal the text takes. */
export function widthOf(text: string): number {
  if (/^[ -~]*$/.test(text)) return text.length
  const width = (character: string) => {
    const edge = WIDE.findIndex((edge) => (character.codePointAt(0) ?? 0) < edge)
    return NONE.test(character) ? 0 : edge % 2 === 1 ? 2 : 1
  }
  const widths = Array.from(segmenter.segment(text), ({ segment }) => {
    return EMOJI.test(segment) ? 2 : total([...segment].map(width))
  })
  return total(widths)
}

/** Breaks text into at most `max` lines of `width` columns; `…` says that there is more. */
export function wrap(text: string, width: number, max: number): string[] {
  const limit = 3000 // `max` lines hold less, and a text may be megabytes long
  const lines: string[] = []
  for (const paragraph of text.slice(0, limit).split(/\r?\n|[\u2028\u2029]/)) {
    let row = ''
    let used = 0
    for (const { segment } of segmenter.segment(paragraph.replace(UNSAFE, standIn))) {
      const size = widthOf(segment)
      if (used + size > width) {
        const space = segment === ' ' ? row.length : row.lastIndexOf(' ')
        const end = space > row.length / 2 ? space : row.length
        lines.push(row.slice(0, end))
        if (lines.length > max) break
        row = row.slice(end).trimStart()
        used = widthOf(row)
        if (segment === ' ') continue
      }
      row += segment
      used += size
    }
    if (row.trim()) lines.push(row.trimEnd())
    if (lines.length > max) break
  }
  if (lines.length <= max && text.length <= limit) return lines
  const [last = ''] = wrap(lines[max - 1] ?? '', width - 1, 9)
  return [...lines.slice(0, max - 1), `${last}…`]
}

function standIn(c: string): string {
  if (c === '\t') return '    '
  return c < ' ' ? String.fromCodePoint(0x2400 + c.charCodeAt(0)) : '\ufffd'
}

/** Reads the run that a step's number or name, or a path, stands for. */
function openRun(argument: string) {
  const number = /^\d\d?$/.test(argument) ? `${argument.padStart(2, '0')}-` : '/'
  const step = readdirSync(join(ROOT, 'steps')).find((file) => file.startsWith(number))
  const name = step ? parse(step).name : argument
  const recorded = join(ROOT, 'logs/recorded')
  const places = [
    { folder: join(ROOT, 'logs', name), what: 'your last offline run, ' },
    { folder: join(recorded, name), what: 'the recording, ' },
    { folder: argument, what: '' },
  ]
  const place = places.find(({ folder }) => existsSync(join(folder, 'parent.log')))
  if (!place) throw new Error(`There is no run ${JSON.stringify(argument)}.`)
  const lanes = readFolder(place.folder)
  const { mode, model } = lanes[0].header
  return {
    lanes,
    where: `${relative('', place.folder)} (${place.what}${mode}, ${model})`,
  }
}

function usage(): string {
  const recorded = join(ROOT, 'logs/recorded')
  const names = existsSync(recorded)
    ? readdirSync(recorded).sort().join(', ')
    : 'nothing yet'
  return `Usage: npm run view 04       one run in columns
       npm run view 02 04    two runs compared
A run is a step's number or name, or a folder that holds a parent.log.
Recorded: ${names}`
}

function main(names: string[]): string[] {
  if (names.length !== 1 && names.length !== 2) throw new Error(usage())
  const { stdout, env } = process
  const width = Math.max(20, Number(stdout.columns || env.COLUMNS) || 80)
  const [a, b] = names.map(openRun)
  if (!b) {
    const colour = stdout.isTTY && !env.NO_COLOR
    return [...wrap(a.where, width, 9), '', ...renderFolder(a.lanes, width, colour)]
  }
  const [one, two] = labels(a.lanes, b.lanes)
  const where = wrap(`${one}: ${a.where}\n${two}: ${b.where}`, width, 9)
  return [...where, '', ...renderComparison(a.lanes, b.lanes, width)]
}

if (process.argv[1] && realpathSync(process.argv[1]) === import.meta.filename) {
  // `npm run view 04 | head` closes the pipe early, and that is no fault.
  process.stdout.on('error', (error: NodeJS.ErrnoException) => {
    if (error.code !== 'EPIPE') throw error
  })
  try {
    process.stdout.write(`${main(process.argv.slice(2)).join('\n')}\n`)
  } catch (error) {
    process.stderr.write(`${(error as Error).message}\n`)
    process.exitCode = 1
  }
}
