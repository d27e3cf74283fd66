/** `npm run record 04`: replays recordings and writes the result over them. */
import { type StdioOptions, spawnSync } from 'node:child_process'
import { cpSync, existsSync, readdirSync, rmSync } from 'node:fs'
import { basename, join, resolve } from 'node:path'
import { isDeepStrictEqual } from 'node:util'
import { isAnswer, type LaneFile, readFolder, renumberIds } from '../base/lane-file.ts'

const ROOT = join(import.meta.dirname, '../../..')
const RECORDED = join(ROOT, 'logs/recorded')
const USAGE = `Usage: npm run record 04        all recordings of a step
       npm run record FOLDER    any other recording
Replays recordings and writes the result over them. The model's turns stay as they are;
what the tools say to them is made anew.`

function foldersOf(wanted: string): string[] {
  if (existsSync(join(wanted, 'parent.log'))) return [resolve(wanted)]
  const isMeant = (name: string) => name.startsWith(wanted.padStart(2, '0'))
  const names = readdirSync(RECORDED).filter(isMeant)
  if (names.length > 0) return names.map((name) => join(RECORDED, name))
  throw new Error(`There is no recording ${JSON.stringify(wanted)}.\n${USAGE}`)
}

/** @throws {Error} naming the lane that the run did not have in full */
function record(folder: string): void {
  const before = readFolder(folder)
  const step = before[0].header.step ?? basename(folder).split('.')[0]
  // Where a replay writes its log.
  const name = basename(folder).startsWith(step) ? basename(folder) : `${step}.replay`
  const own = join(ROOT, 'logs', name)
  const log = own === folder ? `${own}.replay` : own
  rmSync(log, { recursive: true, force: true })
  const args = ['--import', 'tsx', join('steps', `${step}.ts`), '--replay', folder]
  const stdio: StdioOptions = ['ignore', 'inherit', 'inherit']
  spawnSync(process.execPath, args, { cwd: ROOT, stdio })
  const after = readFolder(log)
  for (const lane of before) {
    const same = after.find((file) => file.name === lane.name)
    if (same && isDeepStrictEqual(answersIn(same), answersIn(lane))) continue
    const lacks = `the run did not have all of the model's turns in ${lane.name}`
    throw new Error(`${basename(folder)}: ${lacks}. Nothing was written over it.`)
  }
  cpSync(log, folder, { recursive: true })
}

function answersIn({ lines }: LaneFile) {
  const renumber = renumberIds()
  const renumbered = lines.map((line) => ({ ...line, content: renumber(line.content) }))
  return renumbered.filter(isAnswer).map(({ content, event }) => ({ content, event }))
}

try {
  const wanted = process.argv.slice(2)
  if (wanted.length === 0) throw new Error(USAGE)
  if (wanted.includes('--help')) console.log(USAGE)
  else for (const folder of wanted.flatMap(foldersOf)) record(folder)
} catch (error) {
  console.error((error as Error).message)
  process.exitCode = 1
}
