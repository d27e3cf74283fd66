/** What a run says of itself, at its start and at its end. */
import { join, relative } from 'node:path'
import process from 'node:process'
import type { Lane } from '../base/lane-file.ts'
import { readLane, requestSizes } from '../base/lane-file.ts'
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
  for (const { name, sums, earlier } of lanes) {
    const count = `${sums.messages} message${sums.messages === 1 ? '' : 's'}`
    const [input, output] = [sums.input + earlier.input, sums.output + earlier.output]
    const tokens = isLive ? `, tokens ${input} in, ${output} out` : ''
    let size = ''
    try {
      if (!broken) size = largestRequest(join(logs, `${name}.log`))
    } catch (error) {
      broken = error as Error // somebody has taken the file away
    }
    print(`${name}: ${count}${size}${tokens}`, 'dim')
  }
  if (broken) {
    complain(`This run is not logged in full: ${broken.message}`)
    process.exitCode = 1
  } else {
    print(`log: ${shorten(logs)}`, 'dim')
  }
}

/** Sizes are counted from the file, as everywhere else. */
function largestRequest(path: string): string {
  const most = Math.max(0, ...requestSizes(readLane(path)))
  return `, largest request ${most.toLocaleString('en-US')} bytes`
}
