/** Two runs compared lane by lane: in numbers, in bars, and in a sentence. */
import { type LaneFile, requestSizes } from '../base/lane-file.ts'
import { wrap } from '../base/width.ts'

const SENT = 'bytes of all requests'

/**
 * Two runs lane by lane, in numbers and bars; tokens only where an API counted them. The
 * last line says what it comes to.
 */
export function renderComparison(a: LaneFile[], b: LaneFile[], width: number): string[] {
  const labels = labelsOf(a, b)
  const names = [...new Set([...a, ...b].map(({ name }) => name)), 'all lanes']
  const rows = names.flatMap((name) =>
    [a, b].flatMap((run, i) => {
      const lanes = run.filter((lane) => name === 'all lanes' || name === lane.name)
      const row = { title: `${labels[i]} ${name}`, sums: sumsOf(lanes) }
      return lanes.length > 0 ? row : []
    }),
  )
  const keys = new Set(rows.flatMap(({ sums }) => Object.keys(sums)))
  const charts = [...keys].flatMap((key) => {
    const most = Math.max(...rows.map(({ sums }) => sums[key] ?? 0))
    const digits = number(most).length
    const unit = Math.max(0, width - digits - 18) / (most || 1)
    const lines = rows.map(({ title, sums: { [key]: value } }) => {
      const text = (value === undefined ? '–' : number(value)).padStart(digits)
      const bar = '█'.repeat(Math.round((value ?? 0) * unit))
      return `  ${title.padEnd(12)}  ${text}  ${bar}`
    })
    return [...[key, ...lines].flatMap((line) => wrap(line, width, 1)), '']
  })
  return [...charts, ...wrap(conclusion(a, b), width, 9)]
}

function conclusion(a: LaneFile[], b: LaneFile[]): string {
  const [one, two] = labelsOf(a, b)
  const sent = (lanes: LaneFile[]) => sumsOf(lanes)[SENT]
  const percent = (x: LaneFile[], y: LaneFile[]) => Math.round((100 * sent(x)) / sent(y))
  if (sent([a[0]]) === 0) return `${one}'s parent has sent nothing to compare with.`
  const parents = `${percent([b[0]], [a[0]])} % of what ${one}'s parent sends`
  return `${two}'s parent sends ${parents}; all lanes together ${percent(b, a)} %.`
}

/** The sums of some lanes, by their titles. */
function sumsOf(lanes: LaneFile[]): Record<string, number> {
  const sizes = lanes.map(requestSizes)
  const usages = lanes.flatMap(({ lines }) => lines.flatMap(({ usage }) => usage ?? []))
  const counts = usages.flatMap(Object.entries)
  const tokens = (field: RegExp) =>
    total(counts.map(([name, count]) => (field.test(name) ? count : 0)))
  return {
    messages: total(lanes.map(({ messages }) => messages.length)),
    'bytes of the largest request': Math.max(...sizes.map((lane) => lane.at(-1) ?? 0)),
    [SENT]: total(sizes.flat()),
    ...(counts.length > 0 && { 'tokens in': tokens(/^(cache_\w+_)?input_tokens$/) }),
    ...(counts.length > 0 && { 'tokens out': tokens(/^output_tokens$/) }),
  }
}

/** Short names for two runs: their steps' numbers if these differ, else A and B. */
export function labelsOf(a: LaneFile[], b: LaneFile[]): string[] {
  const numbers = [a, b].map(([{ header }]) => /^\d+/.exec(header.step)?.[0] ?? '')
  return new Set(['', ...numbers]).size === 3 ? numbers : ['A', 'B']
}

const total = (values: number[]) => values.reduce((a, b) => a + b, 0)
const number = (value: number) => value.toLocaleString('en-US')
