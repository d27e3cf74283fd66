/** What a reader sees while a step runs. */
import { stderr, stdout } from 'node:process'
import { redact } from './log.ts'

const COLOURS = { red: 31, green: 32, yellow: 33, cyan: 36, dim: 2 }
let status = ''
let cutOff = false

// `npx tsx … | head` closes the pipe early; the run goes on and its log is complete.
stdout.on('error', (error: NodeJS.ErrnoException) => {
  if (error.code !== 'EPIPE') throw error
  cutOff = true
})

/** Prints text as whole lines, without secrets and control sequences. */
export function print(text: string, colour?: keyof typeof COLOURS): void {
  if (cutOff) return
  const shown = colour ? paint(visible(text), colour) : visible(text)
  stdout.write(`${status && '\r\x1b[K'}${shown}\n${status}`)
}

/** Prints what went wrong, to standard error. */
export function complain(text: string): void {
  waitFor('')
  stderr.write(`${paint(visible(text), 'red', stderr.isTTY)}\n`)
}

/** On a terminal, says what is waited for, until the next call; '' takes it away. */
export function waitFor(what: string): void {
  if (!stdout.isTTY || cutOff) return
  const next = what && paint(`… ${what}`.slice(0, stdout.columns - 1), 'dim')
  stdout.write(`${status && '\r\x1b[K'}${next}`)
  status = next
}

/** Text without secrets and control sequences. */
export function visible(text: string): string {
  // biome-ignore lint/suspicious/noControlCharactersInRegex: they are what is removed
  return redact(text).replace(/[\x00-\x08\x0b-\x1f\x7f-\x9f]/g, '')
}

function paint(text: string, colour: keyof typeof COLOURS, tty = stdout.isTTY): string {
  const plain = !tty || Boolean(process.env.NO_COLOR)
  return plain ? text : `\x1b[${COLOURS[colour]}m${text}\x1b[0m`
}
