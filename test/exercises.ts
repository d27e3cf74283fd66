/** The exercises of the chapters: an edit to a step, and what its run then shows. */
import assert from 'node:assert/strict'
import type { LaneFile } from '../steps/support/lane-file.ts'

export type Exercise = {
  step: string
  /** Whole lines of the step, and what the reader makes of them. */
  from: string
  to: string
  /** Behind the command, with a space before it. */
  args?: string
  /** The story that the chapter tells: exit code, what the terminal shows, the lanes. */
  expect: (run: { code: number; output: string; lanes: LaneFile[] }) => void
}

/** A lane's messages from number `from` on (they count from 1), as text. */
const said = (lane: LaneFile, from = 1) => JSON.stringify(lane.messages.slice(from - 1))

export const EXERCISES: Record<string, Exercise> = {
}
