/** Two runs compared lane by lane: in numbers, in bars, and in a sentence. */
import { type LaneFile, requestSizes, tokensIn } from '../base/lane-file.ts'
import { fit, widthOf, withCommas } from '../base/width.ts'
import { wrap } from './wrap.ts'

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
      const title = `${labels[i]} ${name}`
      return lanes.length > 0 ? { title, sums: sumsOf(lanes) } : []
    }),
  )
  const titles = Math.max(...rows.map(({ title }) => widthOf(title)))
  const keys = new Set(rows.flatMap(({ sums }) => Object.keys(sums)))
  const charts = [...keys].flatMap((key) => {
    const most = Math.max(...rows.map(({ sums }) => sums[key] ?? 0))
    const digits = withCommas(most).length
    const unit = Math.max(0, width - digits - titles - 6) / (most || 1)
    const lines = rows.map(({ title, sums: { [key]: value } }) => {
      const text = (value === undefined ? '–' : withCommas(value)).padStart(digits)
      const bar = '█'.repeat(Math.round((value ?? 0) * unit))
      return `  ${title}${' '.repeat(titles - widthOf(title))}  ${text}  ${bar}`
    })
    return [...[key, ...lines].map((line) => fit(line.trimEnd(), width)), '']
  })
  return [...charts, ...wrap(conclusion(a, b), width, 9)]
}

function conclusion(a: LaneFile[], b: LaneFile[]): string {
  const [one, two] = labelsOf(a, b)
  const sent = (lanes: LaneFile[]) => total(lanes.flatMap(requestSizes))
  const percent = (x: LaneFile[], y: LaneFile[]) => Math.round((100 * sent(x)) / sent(y))
  if (sent([a[0]]) === 0) return `${one}'s parent has sent nothing to compare with.`
  const parents = `${percent([b[0]], [a[0]])} % of what ${one}'s parent sends`
  return `${two}'s parent sends ${parents}; all lanes together ${percent(b, a)} %.`
}

function sumsOf(lanes: LaneFile[]): Record<string, number> {
  const lines = lanes.flatMap(({ lines }) => lines)
  const sizes = lanes.flatMap(requestSizes)
  const { input, output } = tokensIn(lines.map(({ usage }) => usage))
  return {
    messages: lines.filter(({ role }) => role).length,
    'bytes of the largest request': Math.max(0, ...sizes),
    'bytes of all requests': total(sizes),
    ...(input > 0 && { 'tokens in': input, 'tokens out': output }),
  }
}

/** Short names for two runs: their steps' numbers if these differ, else A and B. */
export function labelsOf(a: LaneFile[], b: LaneFile[]): string[] {
  const numbers = [a, b].map(([{ header }]) => /^\d+/.exec(header.step)?.[0] ?? '')
  return new Set(['', ...numbers]).size === 3 ? numbers : ['A', 'B']
}

const total = (values: number[]) => values.reduce((a, b) => a + b, 0)
