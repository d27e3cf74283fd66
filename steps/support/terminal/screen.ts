/** What a reader sees while a step runs. */
import process, { stderr, stdout } from 'node:process'
import type { MessageParam } from '@anthropic-ai/sdk/resources/messages'
import { callLine } from '../base/lane-file.ts'
import { redact } from '../base/secrets.ts'
import { standIns } from '../base/width.ts'

const COLOURS = { red: 31, green: 32, yellow: 33, cyan: 36, dim: 2 }
let status = ''
let cutOff = false
let speaker = ''

// `npx tsx … | head` closes the pipe early; the run goes on and its log is complete.
for (const stream of [stdout, stderr]) {
  stream.on('error', ({ code, message }: NodeJS.ErrnoException) => {
    if (stream !== stdout || cutOff) return
    cutOff = true
    if (code === 'EPIPE') return
    complain(`Nothing more can be shown here: ${message}`)
    process.exitCode = 1
  })
}

/** Prints text as whole lines, made `visible`. */
export function print(text: string, colour?: keyof typeof COLOURS): void {
  write(visible(text), colour)
}

function write(shown: string, colour?: keyof typeof COLOURS): void {
  if (cutOff) return
  const painted = colour ? paint(shown, colour) : shown
  stdout.write(`${status && '\r\x1b[K'}${painted}\n${status}`)
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
    if (block.type === 'tool_use') write(cut(`${indent}> ${callLine(block)}`), 'green')
    else write(cut(`${indent}✗ ${failure}`), 'red')
  }
}

/** At most 80 columns of a text's first line; no secret is cut to an unknown half. */
function cut(text: string): string {
  const [line] = visible(text).split('\n')
  return line.length > 80 && [...line].length > 80
    ? `${[...line].slice(0, 79).join('')}…`
    : line
}

/** On a terminal, says what is waited for, until the next call; '' takes it away. */
export function waitFor(what: string): void {
  if (!stdout.isTTY || cutOff) return
  const next = what && paint(`… ${what}`.slice(0, stdout.columns - 1), 'dim')
  stdout.write(`${status && '\r\x1b[K'}${next}`)
  status = next
}

/** Text without secrets, and with nothing that steers a terminal. */
export function visible(text: string): string {
  return standIns(redact(text))
}

function paint(text: string, colour: keyof typeof COLOURS, tty = stdout.isTTY): string {
  const plain = !tty || Boolean(process.env.NO_COLOR)
  return plain ? text : `\x1b[${COLOURS[colour]}m${text}\x1b[0m`
}
