/** The folders of a run: its recording, its log, its working directory. */
import * as fs from 'node:fs'
import { basename, dirname, join, parse, resolve } from 'node:path'
import { GO_LIVE } from '../base/errors.ts'
import { type LaneFile, lanesIn, readFolder } from '../base/lane-file.ts'
import { lock } from './lock.ts'
import type { Settings } from './settings.ts'

export type Place = {
  step: string // its file's name
  number: string // of the step that this is, or that it is a changed copy of
  logs: string
  workdir: string
  isNew: boolean // whether this run made the working directory
  recording?: { folder: string; lanes: LaneFile[] } // offline, read before all else
}

/**
 * Finds and makes them, for the step with this file. Offline everything is fresh: the
 * working directory is emptied, the last run's lanes go. Live nothing is lost: each run's
 * log gets a folder of its own, and the working directory stays.
 *
 * @throws {Error} when there is no recording, another process is in the folder, or a
 * folder cannot be used
 */
export function openPlace(filename: string, settings: Settings): Place {
  const { live, continued, replay } = settings
  const root = dirname(dirname(filename))
  const { name: step } = parse(filename)
  const { number, recorded } = findLesson(filename, join(root, 'logs', 'recorded'))
  if (continued && number < '09') {
    throw new Error('--continue comes with step 09: this step starts anew each time.')
  }
  const recording = live ? undefined : readRecording(step, replay ?? recorded)
  const name = recording ? nameOf(step, root, recording.folder, replay) : step
  const own = join(root, '.workspace', live ? '' : 'offline', name)
  if (recording) lock(own)
  const workdir = settings.workdir ? resolve(settings.workdir) : own
  for (const old of recording && workdir === own ? [own, `${own}.worktrees`] : []) {
    fs.rmSync(old, { recursive: true, force: true })
  }
  const isNew = !fs.existsSync(workdir)
  orSay('The working directory cannot be used', () => {
    if (isNew) fs.mkdirSync(workdir, { recursive: true })
    const app = join(root, 'steps', 'support', 'login-app') // to work on from 05 on
    if (isNew && number >= '05') fs.cpSync(app, workdir, { recursive: true })
    fs.readdirSync(workdir)
  })
  const all = join(root, 'logs', live ? 'live' : '')
  const logs = continued
    ? lastRun(all, step)
    : orSay('Nothing can be logged', () => openLogs(all, name, live !== undefined))
  if (live) lock(join(logs, 'parent.log'))
  return { step, number, logs, workdir: fs.realpathSync(workdir), isNew, recording }
}

function orSay<T>(what: string, make: () => T): T {
  try {
    return make()
  } catch (error) {
    throw new Error(`${what}: ${(error as Error).message}`)
  }
}

/**
 * The number of the step that a file's header names (`04 · …`) or builds on, so that a
 * changed copy runs like its original, and the folder of its recording.
 */
function findLesson(filename: string, folder: string) {
  const { name } = parse(filename)
  const [header] = fs.readFileSync(filename, 'utf8').split('*/')
  const named = /^[ /*]*(\d\d) · /m.exec(header) ?? /^(\d\d)-/.exec(name)
  const base = /^[ /*]*Builds on +(\d\d)/m.exec(header)
  const names = fs.existsSync(folder) ? fs.readdirSync(folder) : []
  const recordingOf = (number: string) =>
    names.find((other) => other.startsWith(`${number}-`) && !other.includes('.'))
  const numbers = [named, base].flatMap((found) => found?.[1] ?? [])
  const number = numbers.find(recordingOf) ?? numbers[0]
  if (!number) {
    const how = 'give it a header that begins with "04 · " or has a line "Builds on 04".'
    throw new Error(`${basename(filename)} does not say which step it is like: ${how}`)
  }
  const own = names.includes(name) ? name : recordingOf(number)
  return { number, recorded: own && join(folder, own) }
}

function readRecording(step: string, named?: string) {
  const advice = `replay another one with --replay FOLDER. ${GO_LIVE}`
  if (!named) throw new Error(`There is no recording of ${step}: ${advice}`)
  const folder = resolve(named)
  return { folder, lanes: readFolder(folder) }
}

/** The name of an offline run: a replay never writes over what it replays. */
function nameOf(step: string, root: string, folder: string, replay?: string): string {
  if (!replay) return step
  const name = basename(folder).startsWith(step) ? basename(folder) : `${step}.replay`
  const isSame = join(root, 'logs', name) === fs.realpathSync(folder)
  return isSame ? `${name}.replay` : name
}

function lastRun(folder: string, step: string): string {
  const names = fs.existsSync(folder) ? fs.readdirSync(folder).sort() : []
  const stepOf = (name: string) => name.replace(/-\d{4}-\d\d-\d\d-[\d-]+$/, '')
  const own = names.filter((name) => stepOf(name) === step)
  const last = own.findLast((name) => fs.existsSync(join(folder, name, 'parent.log')))
  if (last) return join(folder, last)
  throw new Error(`There is no live run of ${step} to continue.`)
}

/** Makes the folder that a run logs into: live a new one, offline one without lanes. */
function openLogs(parent: string, name: string, live: boolean): string {
  fs.mkdirSync(parent, { recursive: true })
  const begun = live ? `${name}-${stamp()}` : name
  for (let n = 1; ; n++) {
    const logs = join(parent, n === 1 ? begun : `${begun}-${n}`)
    const isNew = fs.mkdirSync(logs, { recursive: true }) // what was made, if any
    if (!isNew && live) continue
    for (const lane of lanesIn(logs)) fs.rmSync(join(logs, `${lane}.log`))
    return logs
  }
}

/** Now and here, as 2026-03-01-143000; Sweden writes it almost so. */
const stamp = () => new Date().toLocaleString('sv').replace(' ', '-').replaceAll(':', '')
