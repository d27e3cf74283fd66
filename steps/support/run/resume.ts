/** A lane's file as a session: what it takes to go on with it. */
import { appendFileSync, existsSync, readFileSync, truncateSync } from 'node:fs'
import { basename, join } from 'node:path'
import type { MessageParam } from '@anthropic-ai/sdk/resources/messages'
import { childrenIn, type LaneFile, mapStrings, readLane } from '../base/lane-file.ts'
import { requestError } from '../base/protocol.ts'

/**
 * Reads a lane of this run back; once the run has begun, only a child's. A last line that
 * was torn when its writer died is dropped from the file; a call that was never answered
 * is left for the caller to answer.
 *
 * @throws {Error} when there is no such lane (naming those there are), or when its file
 * is broken in any other way
 */
export function readBack(
  folder: string,
  name: string,
  workdir = '<workdir>',
  begun = false,
): LaneFile {
  const names = childrenIn(folder)
  const path = join(folder, `${name}.log`)
  const isParent = name === 'parent' && !begun && existsSync(path)
  if (!isParent && !names.includes(name)) {
    const others = names.length > 0 ? `, only ${names.join(', ')}` : ' yet, nor another'
    throw new Error(`There is no ${name} in this run${others}.`)
  }
  dropTornLine(path)
  const file = readHere(path)
  const messages = mapStrings(file.messages, (text) =>
    text.replaceAll('<workdir>', () => workdir),
  )
  const reason = brokenHistory(messages)
  if (reason) throw new Error(`${name}.log cannot be continued: ${reason}`)
  return { ...file, messages }
}

/** What is wrong is for a log, too: no path of this machine. */
function readHere(path: string): LaneFile {
  try {
    return readLane(path)
  } catch (error) {
    throw new Error((error as Error).message.replace(path, basename(path)))
  }
}

function dropTornLine(path: string): void {
  const bytes = readFileSync(path)
  const end = bytes.lastIndexOf('\n') + 1
  if (end === bytes.length) return
  try {
    JSON.parse(bytes.subarray(end).toString())
    appendFileSync(path, '\n') // whole, but for its end
  } catch {
    if (end > 0) truncateSync(path, end) // a lane without even a first line is none
  }
}

function brokenHistory(messages: MessageParam[]): string | undefined {
  if (messages.length === 0) return undefined // its writer died before the first prompt
  const closed = messages.at(-1)?.role === 'assistant' ? messages.slice(0, -1) : messages
  const tools = [{ name: 'any', input_schema: { type: 'object' } }]
  return requestError({ model: 'any', max_tokens: 1, tools, messages: closed })
}
