/** What a run says of itself, at its start and at its end. */
import { relative } from 'node:path'
import process from 'node:process'
import { inNumbers } from '../base/family.ts'
import { type Lane, type LaneFile, readFolder } from '../base/lane-file.ts'
import { complain, print } from '../terminal/screen.ts'
import type { Place } from './folders.ts'
import type { Settings } from './settings.ts'

/** A path as seen from where the reader is. */
export const shorten = (path: string) =>
  relative(process.cwd(), path).replaceAll('\\', '/') || '.'

/** In its first line: mode, model, endpoint, where key and log are; then what to know. */
export function introduce(
  step: string,
  model: string,
  { live, notes }: Settings,
  { recording, logs, broken }: Place,
): void {
  const source = live
    ? `live: ${model} at ${live.baseURL}, key from ${live.credential.source}`
    : `offline: ${model} model of ${shorten(recording?.folder ?? '')}, no key`
  print(`${step}, ${source}; log: ${broken ? 'none' : shorten(logs)}`, 'dim')
  const note = recording?.lanes[0].header.note
  if (note) print(String(note), 'dim')
  for (const line of notes) print(line, 'yellow')
  if (broken) complain(`Nothing can be logged: ${broken.message}`)
}

/** What each lane holds, and where the log is; a run not logged in full has failed. */
export function summarize(
  lanes: Lane[],
  isLive: boolean,
  logs: string,
  unlogged: Error | undefined,
): void {
  let broken = unlogged
  let files: LaneFile[] = []
  try {
    if (!broken && lanes.length > 0) files = readFolder(logs)
  } catch (error) {
    broken = error as Error // somebody has taken a file away
  }
  for (const { name, sums, earlier } of lanes) {
    const file = files.find((file) => file.name === name)
    // Counted from the files, as everywhere else.
    const numbers = file ? inNumbers(file, files).join(', ') : 'not logged in full'
    const [input, output] = [sums.input + earlier.input, sums.output + earlier.output]
    const tokens = isLive ? `, tokens ${input} in, ${output} out` : ''
    print(`${name}: ${numbers}${tokens}`, 'dim')
  }
  if (broken) {
    complain(`This run is not logged in full: ${broken.message}`)
    process.exitCode = 1
  } else {
    print(`log: ${shorten(logs)}`, 'dim')
  }
}
