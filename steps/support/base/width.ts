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
let segmenter: Intl.Segmenter | undefined

/** Finds what looks like one character. What finds it is made late: it takes a while. */
function segments(text: string) {
  segmenter ??= new Intl.Segmenter('en')
  return segmenter.segment(text)
}

/** How many columns of a terminal the text takes. */
export function widthOf(text: string): number {
  if (/^[ -~]*$/.test(text)) return text.length
  const widths = Array.from(segments(text), ({ segment }) => columnsOf(segment))
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

/** What of a line stands in so many columns: one character at least. */
export function headOf(line: string, columns: number): string {
  if (/^[ -~]*$/.test(line.slice(0, columns + 1))) return line.slice(0, columns)
  let [used, end] = [0, 0]
  for (const { segment } of segments(line)) {
    used += columnsOf(segment)
    if (used > columns && end > 0) break
    end += segment.length
  }
  return line.slice(0, end)
}

export const expand = (text: string) => standIns(text).replaceAll('\t', '    ')

/** The text with something to look at in place of whatever would steer a terminal. */
export function standIns(text: string): string {
  return text.replace(/\r\n|[\u2028\u2029]/g, '\n').replace(UNSAFE, (character) => {
    const code = character.charCodeAt(0)
    return code < 32 ? String.fromCharCode(0x2400 + code) : '\ufffd'
  })
}

export const withCommas = (n: number) => String(n).replace(/\B(?=(\d{3})+$)/g, ',')
