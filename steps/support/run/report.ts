/** What a run says of itself, at its start and at its end. */
import { inNumbers } from '../base/family.ts'
import type { Lane } from '../base/lane.ts'
import { readFolder, tokensIn } from '../base/lane-file.ts'
import { shorten } from '../base/paths.ts'
import { complain, print } from '../terminal/screen.ts'
import type { Place } from './folders.ts'
import type { Settings } from './settings.ts'

/** In its first line: mode, model, endpoint, where key and log are; then what to know. */
export function introduce(model: string, settings: Settings, place: Place): void {
  const { live, notes } = settings
  const { step, recording, logs } = place
  const source = live
    ? `live: ${model} at ${live.baseURL}, key from ${live.credential.source}`
    : `offline: ${model} model of ${shorten(recording?.folder ?? '')}, no key`
  print(`${step}, ${source}; log: ${shorten(logs)}`, 'dim')
  const note = recording?.lanes[0].header.note
  if (note) print(String(note), 'dim')
  for (const line of notes) print(line, 'yellow')
}

/** What each lane's file holds, and where the log is. Not logged in full is a failure. */
export function summarize(lanes: Lane[], logs: string, isLive: boolean): void {
  try {
    const broken = lanes.find(({ broken }) => broken)?.broken
    if (broken) throw broken
    const files = lanes.length > 0 ? readFolder(logs) : []
    for (const file of files) {
      const { input, output } = tokensIn(file.lines.map(({ usage }) => usage))
      const tokens = isLive ? `, tokens ${input} in, ${output} out` : ''
      print(`${file.name}: ${inNumbers(file, files).join(', ')}${tokens}`, 'dim')
    }
    print(`log: ${shorten(logs)}`, 'dim')
  } catch (error) {
    complain(`This run is not logged in full: ${(error as Error).message}`)
    process.exitCode = 1
  }
}
