/** Where prompts come from: words, a terminal, piped lines, or the step itself. */
import process, { stdin, stdout } from 'node:process'
import { createInterface, type Key } from 'node:readline'
import { RunError } from '../base/errors.ts'

type Given = { words: string; live?: object }

/** The prompts of a run: words, what is typed, piped lines, or the step's own. */
export async function* readPrompts(label: string, own: string[], { words, live }: Given) {
  if (words) return yield* [words]
  if (stdin.isTTY) return yield* live ? typedPrompts(label, own[0]) : own
  let lines = 0
  for await (const line of pipedLines(live ? undefined : 200)) {
    lines += 1
    const prompt = line.trim() // a BOM goes with the blanks
    if (prompt === 'q' || prompt === 'exit') return
    if (prompt) yield prompt
  }
  if (lines === 0) yield* own
}

async function* typedPrompts(label: string, own: string) {
  // A line break in what is offered would send it unseen.
  for (let offer = own.replace(/\s+/g, ' '); ; offer = '') {
    const typed = await question(`${label} > `, offer)
    // A q behind the offer is meant as one alone.
    const words = typed?.startsWith(offer) ? typed.slice(offer.length) : typed
    if (words === undefined || words === 'q' || words === 'exit') return
    if (typed) yield typed
  }
}

/** A line typed at the prompt, or lines pasted at once; undefined at the end of input. */
export function question(label: string, offer: string, signal?: AbortSignal) {
  return new Promise<string | undefined>((answered) => {
    const streams = { input: stdin, output: stdout }
    const terminal = createInterface({ ...streams, prompt: label, signal })
    const lines: string[] = []
    // By itself readline takes Ctrl+D for the end of input only on an empty line.
    const leave = (_: string, { ctrl, name }: Key) => {
      if (ctrl && name === 'd' && terminal.line === offer) terminal.close()
    }
    stdin.on('keypress', leave)
    terminal.on('line', (line) => {
      if (lines.push(line) === 1) setImmediate(() => terminal.close())
    })
    terminal.on('close', () => {
      stdin.off('keypress', leave)
      answered(lines.length > 0 ? [...lines, terminal.line].join('\n').trim() : undefined)
    })
    terminal.on('SIGINT', () => {
      terminal.close()
      process.emit('SIGINT')
    })
    terminal.prompt()
    terminal.write(offer)
  })
}

/** Lines of piped input; a pipe that stays silent for `patience` ms counts as none. */
async function* pipedLines(patience?: number) {
  const lines = createInterface({ input: stdin })
  const timer = patience && setTimeout(() => lines.close(), patience)
  try {
    for await (const line of lines) {
      clearTimeout(timer)
      if (line.includes('\ufffd')) {
        throw new RunError('Standard input is not UTF-8 text: save it as UTF-8.')
      }
      yield line
    }
  } finally {
    clearTimeout(timer)
    // Its other end may stay open: after q that must not hold the program.
    stdin.destroy()
  }
}
