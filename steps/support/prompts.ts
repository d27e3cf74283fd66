/** Where prompts come from: words, a terminal, piped lines, or the step itself. */
import process from 'node:process'
import { createInterface } from 'node:readline'
import type { Settings } from './settings.ts'
import { RunError, visible, waitFor } from './terminal.ts'

/** The prompts of a run: words, what is typed, piped lines, or the step's own. */
export async function* readPrompts(
  label: string,
  own: string[],
  { words, live }: Settings,
): AsyncGenerator<string> {
  if (words) return yield words
  if (process.stdin.isTTY) return yield* live ? typedPrompts(label, own[0]) : own
  let lines = 0
  for await (const line of pipedLines(live ? undefined : 200)) {
    lines += 1
    const prompt = line.replace(/^\ufeff/, '').trim()
    if (prompt === 'q' || prompt === 'exit') return
    if (prompt) yield prompt
  }
  if (lines === 0) yield* own
}

async function* typedPrompts(label: string, offer: string) {
  for (let first = true; ; first = false) {
    const line = await question(`${label} > `, first ? offer : '')
    if (line === undefined || line === 'q' || line === 'exit') return
    if (line) yield line
  }
}

/** One line typed at the prompt; undefined at the end of input. */
function question(label: string, offer: string): Promise<string | undefined> {
  return new Promise((answered) => {
    const terminal = createInterface({ input: process.stdin, output: process.stdout })
    terminal.on('close', () => answered(undefined))
    terminal.on('SIGINT', () => {
      terminal.close()
      process.emit('SIGINT')
    })
    terminal.question(label, (line) => {
      answered(line.trim())
      terminal.close()
    })
    terminal.write(offer)
  })
}

/** Asks on the terminal; only a clear yes is one. */
export async function confirm(text: string): Promise<boolean> {
  waitFor('')
  return /^y(es)?$/i.test((await question(`${visible(text)} Allow it? [y/N] `, '')) ?? '')
}

/** Lines of piped input; a pipe that stays silent for `patience` ms counts as none. */
async function* pipedLines(patience?: number) {
  const lines = createInterface({ input: process.stdin })
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
    process.stdin.destroy()
  }
}
