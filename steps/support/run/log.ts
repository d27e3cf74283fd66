/** The writer of a lane's file: the pino set-up, and what makes two files comparable. */
import { realpathSync } from 'node:fs'
import { pathToFileURL } from 'node:url'
import type { MessageParam } from '@anthropic-ai/sdk/resources/messages'
import pino from 'pino'
import { type Lane, type LaneHeader, mapStrings, renumberIds } from '../base/lane-file.ts'
import { redact } from '../base/secrets.ts'

/** Writes the working directory as `<workdir>`, however a tool may spell it. */
export function foldPath(workdir: string): (text: string) => string {
  const paths = [workdir, realpathSync(workdir)]
  const urls = paths.map((path) => pathToFileURL(path).href)
  const slashes = paths.flatMap((path) => [
    path.replaceAll('\\', '/'),
    JSON.stringify(path),
  ])
  const spellings = [
    ...urls,
    ...paths,
    ...slashes.map((text) => text.replaceAll('"', '')),
  ]
  const unique = [...new Set(spellings)].sort((a, b) => b.length - a.length)
  const pattern = unique
    .map((path) => path.replace(/[\\^$.*+?()[\]{}|]/g, '\\$&'))
    .join('|')
  // A sibling whose name only begins the same is another folder.
  const regex = new RegExp(`(?:${pattern})(?![\\w-]|\\.\\w)`, 'g')
  return (text) => text.replace(regex, '<workdir>')
}

type LaneOptions = {
  fold: (text: string) => string
  /** Told the first line that could not be written; no more are tried. */
  failed: (error: Error) => void
  /** What the file holds already; else it gets its first line. */
  history?: MessageParam[]
  /** The lane as it was before in this run. */
  before?: Lane
}

/**
 * Opens a lane's file, if there is a path. Every line is written before a call returns,
 * so that a run killed at any moment leaves all that it finished.
 */
export function openLane(
  path: string | undefined,
  header: LaneHeader,
  { fold, failed, history, before }: LaneOptions,
): Lane {
  let log: pino.Logger | undefined
  const attempt = (write: () => void) => {
    try {
      write()
    } catch (error) {
      log = undefined
      failed(error as Error)
    }
  }
  attempt(() => {
    if (path === undefined) return
    const destination = pino.destination({ dest: path, sync: true, mkdir: true })
    const level = (label: string) => ({ level: label })
    log = pino({ base: null, timestamp: false, formatters: { level } }, destination)
  })
  const clean = <T>(value: T) => mapStrings(value, (text) => redact(fold(text)))
  const renumber = renumberIds()
  const first = clean(header)
  const sums = { messages: 0, turns: 0, input: 0, output: 0 }
  const add = ({ role, content }: MessageParam) => {
    sums.messages += 1
    return { role, content: clean(renumber(content)) }
  }
  if (history) history.forEach(add)
  else attempt(() => log?.info(first))
  return {
    name: header.lane,
    header: first,
    sums,
    earlier: {
      input: (before?.sums.input ?? 0) + (before?.earlier.input ?? 0),
      output: (before?.sums.output ?? 0) + (before?.earlier.output ?? 0),
    },
    message(message, reply) {
      if (message.role === 'assistant') sums.turns += 1
      sums.input += reply?.usage.input_tokens ?? 0
      sums.output += reply?.usage.output_tokens ?? 0
      const usage = header.mode === 'live' ? reply?.usage : undefined
      const stop = reply && { stop_reason: reply.stop_reason, ...(usage && { usage }) }
      const line = { ...add(message), ...stop }
      attempt(() => log?.info(line))
    },
    event(level, event, fields) {
      attempt(() => log?.[level]({ event, ...clean(fields) }))
    },
  }
}
