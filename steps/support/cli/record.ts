/** `npm run record 04`: replays recordings and writes the result over them. */
import { spawnSync } from 'node:child_process'
import { cpSync, readdirSync, rmSync } from 'node:fs'
import { join } from 'node:path'
import process from 'node:process'
import { isDeepStrictEqual } from 'node:util'
import { isAnswer, type LaneFile, readFolder, renumberIds } from '../base/lane-file.ts'

const ROOT = join(import.meta.dirname, '../../..')
const RECORDED = join(ROOT, 'logs/recorded')
const USAGE = `Usage: npm run record 04
Replays all recordings of a step and writes the result over them. The model's turns stay
as they are; what the tools say to them is made anew.`

function namesOf(wanted: string): string[] {
  const isMeant = (name: string) => name.startsWith(wanted.padStart(2, '0'))
  const names = readdirSync(RECORDED).filter(isMeant)
  if (names.length > 0) return names
  throw new Error(`There is no recording ${JSON.stringify(wanted)}.\n${USAGE}`)
}

/** @throws {Error} naming the lane that the run did not have in full */
function record(name: string): void {
  const folder = join(RECORDED, name)
  const before = readFolder(folder)
  const { step } = before[0].header
  const log = join(ROOT, 'logs', name) // where a replay writes it
  rmSync(log, { recursive: true, force: true })
  const args = ['--import', 'tsx', join('steps', `${step}.ts`), '--replay', folder]
  spawnSync(process.execPath, args, {
    cwd: ROOT,
    stdio: ['ignore', 'inherit', 'inherit'],
  })
  const after = readFolder(log)
  for (const lane of before) {
    const same = after.find((file) => file.name === lane.name)
    if (same && isDeepStrictEqual(answersIn(same), answersIn(lane))) continue
    const lacks = `the run did not have all of the model's turns in ${lane.name}`
    throw new Error(`${name}: ${lacks}. Nothing was written over it.`)
  }
  cpSync(log, folder, { recursive: true })
}

/** What the model says in a lane: the part that is written by hand. */
function answersIn({ lines }: LaneFile) {
  const renumber = renumberIds()
  const renumbered = lines.map((line) => ({ ...line, content: renumber(line.content) }))
  return renumbered.filter(isAnswer).map(({ content, event }) => ({ content, event }))
}

try {
  const wanted = process.argv.slice(2)
  if (wanted.length === 0) throw new Error(USAGE)
  if (wanted.includes('--help')) console.log(USAGE)
  else for (const name of wanted.flatMap(namesOf)) record(name)
} catch (error) {
  console.error((error as Error).message)
  process.exitCode = 1
}
