/** What a reader sees while a step runs. */
import process, { stderr, stdout } from 'node:process'
import type { MessageParam } from '@anthropic-ai/sdk/resources/messages'
import { callLine } from '../base/lane-file.ts'
import { redact } from '../base/secrets.ts'
import { fit, standIns } from '../base/width.ts'

const COLOURS = { red: 31, green: 32, yellow: 33, cyan: 36, dim: 2 }
type Colour = keyof typeof COLOURS

let status = ''
let cutOff = false
let speaker = ''

// `npx tsx … | head` closes the pipe early; the run goes on and its log is complete.
stdout.on('error', ({ code, message }: NodeJS.ErrnoException) => {
  if (cutOff) return
  cutOff = true
  if (code === 'EPIPE') return
  complain(`Nothing more can be shown here: ${message}`)
  process.exitCode = 1
})
stderr.on('error', () => {}) // there is nowhere left to say it

/** Prints text as whole lines, made `visible`. */
export function print(text: string, colour?: Colour): void {
  if (cutOff) return
  stdout.write(`${status && '\r\x1b[K'}${paint(visible(text), colour)}\n${status}`)
}

/** Prints what went wrong, to standard error. */
export function complain(text: string): void {
  waitFor('')
  stderr.write(`${paint(visible(text), 'red', stderr.isTTY)}\n`)
}

/** A line for each tool call and each failure; a child's stand under its lane's name. */
export function showCalls(lane: string, { content }: MessageParam): void {
  const indent = lane === 'parent' ? '' : '    '
  for (const block of typeof content === 'string' ? [] : content) {
    const failure = block.type === 'tool_result' && block.is_error && block.content
    if (block.type !== 'tool_use' && typeof failure !== 'string') continue
    if (lane !== speaker && indent) print(`  ${lane}`, 'cyan')
    speaker = lane
    const isCall = block.type === 'tool_use'
    const text = isCall ? `> ${callLine(block)}` : `✗ ${failure}`
    print(fit(redact(indent + text), 80), isCall ? 'green' : 'red')
  }
}

/** On a terminal, says what is waited for, until the next call; '' takes it away. */
export function waitFor(what: string): void {
  if (!stdout.isTTY || cutOff) return
  const next = what && paint(fit(`… ${what}`, (stdout.columns || 80) - 1), 'dim')
  stdout.write(`${status && '\r\x1b[K'}${next}`)
  status = next
}

/** Text without secrets, and with nothing that steers a terminal. */
export function visible(text: string): string {
  return standIns(redact(text))
}

function paint(text: string, colour?: Colour, tty = stdout.isTTY): string {
  const isPlain = !colour || !tty || process.env.NO_COLOR
  return isPlain ? text : `\x1b[${COLOURS[colour]}m${text}\x1b[0m`
}
