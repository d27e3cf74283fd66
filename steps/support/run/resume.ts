/** A lane's file as a session: what it takes to go on with it. */
import { existsSync, readFileSync, truncateSync } from 'node:fs'
import { join } from 'node:path'
import type { MessageParam } from '@anthropic-ai/sdk/resources/messages'
import { type LaneFile, type LaneHeader, lanesIn, readLane } from '../base/lane-file.ts'
import { unfold } from '../base/paths.ts'
import { requestError } from '../base/protocol.ts'
import type { Lanes } from './lanes.ts'

/** A lane that was read back, and the directory in which it goes on. */
type Recovered = LaneFile & { workdir: string }
type Run = { lanes: Lanes }

/**
 * Reads a lane of this run back, to go on in `workdir`; once the run has begun, only a
 * child's. What its writer's death left unfinished is dropped from the file; a call that
 * was never answered is left for the caller to answer.
 *
 * @throws {Error} when there is no such lane (naming those there are), or when its file
 * is broken in any other way
 */
export function recoverLane({ lanes }: Run, name: string, workdir = ''): Recovered {
  const names = lanesIn(lanes.folder).filter((lane) => /^sub-\d+$/.test(lane))
  const path = join(lanes.folder, `${name}.log`)
  const isParent = name === 'parent' && lanes.all.length === 0 && existsSync(path)
  if (!isParent && !names.includes(name)) {
    const others = names.length > 0 ? `, only ${names.join(', ')}` : ' yet, nor another'
    throw new Error(`There is no ${name} in this run${others}.`)
  }
  dropUnfinished(path)
  const file = readLane(path)
  const reason = brokenHistory(file.messages)
  if (reason) throw new Error(`${name}.log cannot be continued: ${reason}`)
  return { ...file, messages: unfold(file.messages, workdir), workdir }
}

/** Fills an empty array with a lane that was read back; its file goes on. */
export function reopenLane({ lanes }: Run, messages: MessageParam[], file: Recovered) {
  messages.push(...file.messages)
  lanes.start(messages, file.header as LaneHeader, file.workdir, file)
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
