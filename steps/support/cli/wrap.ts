import { expand, headOf } from '../base/width.ts'

/** Breaks text into at most `max` lines of `width` columns; `…` stands for the rest. */
export function wrap(text: string, width: number, max: number): string[] {
  const lines: string[] = []
  // `max` lines hold less than that, and a text may be megabytes long.
  for (const line of expand(text.slice(0, 2000)).split('\n')) {
    for (let rest = line.trimEnd(); rest; ) {
      if (lines.length === max) {
        return [...lines.slice(0, -1), `${headOf(lines[max - 1], width - 1)}…`]
      }
      const head = headOf(rest, width)
      const space = `${head}${rest[head.length] ?? ' '}`.lastIndexOf(' ')
      const end = space > head.length / 4 ? space : head.length
      lines.push(rest.slice(0, end).trimEnd())
      rest = rest.slice(end).trimStart()
    }
  }
  return lines
}
