/** Text on a terminal: how wide it is, where it breaks, and what would steer it. */

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
  const seen = segment.replace(NONE, '')
  return [...seen].length + [...seen.matchAll(WIDE)].length
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
    const end = space > row.length / 4 ? space : row.length
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
