/** Text on a terminal: how wide it is, where it is cut, and what would steer it. */

// What a terminal makes of characters: some take two columns, some none, some steer it.
const NONE = /[\p{M}\p{Default_Ignorable_Code_Point}\u1160-\u11ff]/gu
const EMOJI = /\p{Emoji_Presentation}|\ufe0f/u
const UNSAFE = /[^\P{Cc}\t\n]|[\p{Cs}\p{Bidi_Control}\xad\u115f\u3164\uffa0]/gu
const WIDE = new RegExp(
  '[\u1100-\u115f\u2329\u232a\u2e80-\u303e\u3041-\ua4cf\ua960-\ua97f\uac00-\ud7a3' +
    '\uf900-\ufaff\ufe10-\ufe19\ufe30-\ufe6f\uff01-\uff60\uffe0-\uffe6' +
    '\u{16fe0}-\u{1b2ff}\u{1f200}-\u{1f2ff}\u{20000}-\u{3fffd}]',
  'gu',
)
const segmenter = new Intl.Segmenter('en') // finds what looks like one character

/** How many columns of a terminal the text takes. */
export function widthOf(text: string): number {
  if (/^[ -~]*$/.test(text)) return text.length
  const widths = Array.from(segmenter.segment(text), ({ segment }) => columnsOf(segment))
  return widths.reduce((a, b) => a + b, 0)
}

function columnsOf(segment: string): number {
  if (EMOJI.test(segment)) return 2
  const seen = segment.replace(NONE, '')
  return [...seen].length + [...seen.matchAll(WIDE)].length
}

/** The first line of a text, at most `columns` wide; `…` when it is cut. */
export function fit(text: string, columns: number): string {
  const [line] = expand(text).split('\n')
  return headOf(line, columns) === line ? line : `${headOf(line, columns - 1)}…`
}

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

/** What of a line stands in so many columns: one character at least. */
function headOf(line: string, columns: number): string {
  if (/^[ -~]*$/.test(line.slice(0, columns + 1))) return line.slice(0, columns)
  let [used, end] = [0, 0]
  for (const { segment } of segmenter.segment(line)) {
    used += columnsOf(segment)
    if (used > columns && end > 0) break
    end += segment.length
  }
  return line.slice(0, end)
}

const expand = (text: string) => standIns(text).replaceAll('\t', '    ')

/** The text with something to look at in place of whatever would steer a terminal. */
export function standIns(text: string): string {
  return text.replace(/\r\n|[\u2028\u2029]/g, '\n').replace(UNSAFE, (character) => {
    const code = character.charCodeAt(0)
    return code < 32 ? String.fromCharCode(0x2400 + code) : '\ufffd'
  })
}
