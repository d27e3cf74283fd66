/** A lane's file as a session: what it takes to go on with it. */
import { existsSync, readFileSync, truncateSync } from 'node:fs'
import { join } from 'node:path'
import type { MessageParam } from '@anthropic-ai/sdk/resources/messages'
import { type LaneFile, lanesIn, readLane } from '../base/lane-file.ts'
import { requestError } from '../base/protocol.ts'

/**
 * Reads a lane of this run back; once the run has begun, only a child's. What its
 * writer's death left unfinished is dropped from the file; a call that was never answered
 * is left for the caller to answer.
 *
 * @throws {Error} when there is no such lane (naming those there are), or when its file
 * is broken in any other way
 */
export function recoverLane(folder: string, name: string, begun = false): LaneFile {
  const names = lanesIn(folder).filter((lane) => /^sub-\d+$/.test(lane))
  const path = join(folder, `${name}.log`)
  const isParent = name === 'parent' && !begun && existsSync(path)
  if (!isParent && !names.includes(name)) {
    const others = names.length > 0 ? `, only ${names.join(', ')}` : ' yet, nor another'
    throw new Error(`There is no ${name} in this run${others}.`)
  }
  dropUnfinished(path)
  const file = readLane(path)
  const reason = brokenHistory(file.messages)
  if (reason) throw new Error(`${name}.log cannot be continued: ${reason}`)
  return file
}

/** A torn last line goes, and a `compacted` that still waits for its message. */
function dropUnfinished(path: string): void {
  const text = readFileSync(path, 'latin1') // a character is a byte
  const end = text.lastIndexOf('\n') + 1 // at 0 there is no first line, so it is no lane
  const waiting = /^{"level":"info","event":"compacted".*\n$/m.exec(text.slice(0, end))
  const from = waiting?.index ?? end
  if (end > 0 && from < text.length) truncateSync(path, from)
}

function brokenHistory(messages: MessageParam[]): string | undefined {
  if (messages.length === 0) return undefined // its writer died before the first prompt
  const closed = messages.at(-1)?.role === 'assistant' ? messages.slice(0, -1) : messages
  const tools = [{ name: 'any', input_schema: { type: 'object' } }]
  return requestError({ model: 'any', max_tokens: 1, tools, messages: closed })
}
