/** `npm run record 04`: replays a step's recordings and writes the result over them. */
import { spawnSync } from 'node:child_process'
import { cpSync, readdirSync, rmSync } from 'node:fs'
import { dirname, join } from 'node:path'
import process from 'node:process'
import { isDeepStrictEqual } from 'node:util'
import {
  type LaneFile,
  REQUEST_EVENTS,
  readFolder,
  renumberIds,
} from '../base/lane-file.ts'

const root = dirname(dirname(dirname(import.meta.dirname)))
const recorded = join(root, 'logs', 'recorded')

for (const wanted of process.argv.slice(2)) {
  const names = readdirSync(recorded).filter((name) =>
    name.startsWith(wanted.padStart(2, '0')),
  )
  if (names.length === 0) fail(`There is no recording of ${wanted} in logs/recorded.`)
  for (const name of names) record(name)
}
if (process.argv.length < 3) fail('Usage: npm run record 04 (numbers of steps)')

/** The model's turns stay as they are; what the tools say to them is made anew. */
function record(name: string): void {
  const folder = join(recorded, name)
  const before = read(folder)
  const endsBadly = REQUEST_EVENTS.includes(before[0].lines.at(-1)?.event ?? '')
  const step = join('steps', `${name.split('.')[0]}.ts`)
  const run = spawnSync(process.execPath, ['--import', 'tsx', step, '--replay', folder], {
    cwd: root,
    stdio: ['ignore', 'inherit', 'inherit'],
  })
  const kept = 'Nothing was written over it.'
  if ((run.status === 0) === endsBadly) {
    fail(`${name}: the run ended with ${run.status}. ${kept}`)
  }
  const after = read(join(root, 'logs', name))
  for (const lane of before) {
    const same = after.find((file) => file.name === lane.name)
    if (!same || !isDeepStrictEqual(answersIn(same), answersIn(lane))) {
      fail(
        `${name}: the run did not have all of the model's turns in ${lane.name}. ${kept}`,
      )
    }
  }
  rmSync(folder, { recursive: true })
  cpSync(join(root, 'logs', name), folder, { recursive: true })
}

function read(folder: string): LaneFile[] {
  try {
    return readFolder(folder)
  } catch (error) {
    fail((error as Error).message)
  }
}

/** What the model says in a lane: the part that is written by hand. */
function answersIn({ lines }: LaneFile) {
  const renumber = renumberIds()
  return lines
    .map((line) => ({ ...line, content: renumber(line.content) }))
    .filter(
      ({ role, event = '' }) => role === 'assistant' || REQUEST_EVENTS.includes(event),
    )
    .map(({ content, event }) => ({ content, event }))
}

function fail(message: string): never {
  console.error(message)
  process.exit(1)
}
