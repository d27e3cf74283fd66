/** Text on a terminal: how wide it is, where it breaks, and what would steer it. */

// What a terminal makes of characters: some take two columns, some none, some steer it.
const NONE = /[\p{M}\p{Default_Ignorable_Code_Point}\u1160-\u11ff]/u
const EMOJI = /\p{Emoji_Presentation}|\ufe0f/u
const UNSAFE = /[^\P{Cc}\t\n]|[\p{Cs}\p{Bidi_Control}\xad\u115f\u3164\uffa0]/gu
const WIDE = [
  0x1100, 0x1160, 0x2329, 0x232b, 0x2e80, 0x303f, 0x3041, 0xa4d0, 0xa960, 0xa980, 0xac00,
  0xd7a4, 0xf900, 0xfb00, 0xfe10, 0xfe1a, 0xfe30, 0xfe70, 0xff01, 0xff61, 0xffe0, 0xffe7,
  0x16fe0, 0x1b300, 0x1f200, 0x1f300, 0x20000, 0x3fffe,
] // where wide characters begin, end, begin, …
const SIMPLE = /^[\n -~←→✗]*$/ // one column each, and much quicker
const segmenter = new Intl.Segmenter('en')

function segmentsOf(text: string): string[] {
  if (SIMPLE.test(text)) return [...text]
  return Array.from(segmenter.segment(text), ({ segment }) => segment)
}

/** How many columns of a terminal the text takes. */
export function widthOf(text: string): number {
  return segmentsOf(text).reduce((sum, segment) => sum + columnsOf(segment), 0)
}

/** The same for what looks like one character, of however many it is made. */
function columnsOf(segment: string): number {
  if (segment.length === 1 && segment <= '~') return 1
  if (EMOJI.test(segment)) return 2
  const widths = Array.from(segment, (character) => {
    const edge = WIDE.findIndex((edge) => (character.codePointAt(0) ?? 0) < edge)
    return NONE.test(character) ? 0 : edge % 2 === 1 ? 2 : 1
  })
  return widths.reduce((sum, width) => sum + width, 0)
}

/** Breaks text into at most `max` lines of `width` columns; `…` stands for the rest. */
export function wrap(text: string, width: number, max: number): string[] {
  const limit = 2000 // `max` lines hold less, and a text may be megabytes long
  const plain = standIns(text.slice(0, limit)).replaceAll('\t', '    ')
  const lines: string[] = []
  let row = ''
  let used = 0
  for (const segment of segmentsOf(`${plain}\n`)) {
    if (lines.length === max && row.trim()) break
    used += columnsOf(segment)
    if (segment !== '\n' && used <= width) {
      row += segment
      continue
    }
    const space = segment.trim() ? row.lastIndexOf(' ') : row.length
    const end = space > row.length / 2 ? space : row.length
    if (row.trim()) lines.push(row.slice(0, end).trimEnd())
    row = row.slice(end).trimStart() + segment.trim()
    used = widthOf(row)
  }
  if (!row.trim() && text.length <= limit) return lines
  const last = lines[max - 1] ?? ''
  const [cut = ''] = widthOf(last) < width ? [last] : wrap(last, width - 1, 2)
  return [...lines.slice(0, max - 1), `${cut}…`]
}

/** The text with something to look at in place of whatever would steer a terminal. */
export function standIns(text: string): string {
  return text.replace(/\r\n|[\u2028\u2029]/g, '\n').replace(UNSAFE, (character) => {
    const code = character.charCodeAt(0)
    return code < 32 ? String.fromCharCode(0x2400 + code) : '\ufffd'
  })
}
