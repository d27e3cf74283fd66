/** The folders of a run: its recording, its log, its working directory. */
import {
  cpSync,
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  realpathSync,
  rmSync,
} from 'node:fs'
import { basename, dirname, join, parse, resolve } from 'node:path'
import { HOW_TO_GO_LIVE } from '../base/errors.ts'
import { type LaneFile, readFolder } from '../base/lane-file.ts'
import { lock } from './lock.ts'
import type { Settings } from './settings.ts'

export type Place = {
  /** The step's name, its file's. */
  step: string
  /** The number of the step that this is, or that it is a changed copy of. */
  number: string
  logs: string
  workdir: string
  /** Whether the working directory was made by this run. */
  isNew: boolean
  /** Offline: the recording, read whole before anything is written. */
  recording?: { folder: string; lanes: LaneFile[] }
  /** Why nothing can be logged. */
  broken?: Error
}

/**
 * Finds and makes them, for the step with this file. Offline everything is fresh: the
 * working directory is emptied, the last run's lanes go. Live nothing is lost: each run's
 * log gets a folder of its own, and the working directory stays.
 *
 * @throws {Error} when there is no recording, or another process is in the folder
 */
export function openPlace(filename: string, settings: Settings): Place {
  const root = dirname(dirname(filename))
  const { name: step } = parse(filename)
  const { number, recorded } = findLesson(filename, join(root, 'logs', 'recorded'))
  if (settings.continued && number < '09') {
    throw new Error('--continue comes with step 09: this step starts anew each time.')
  }
  const place = settings.live
    ? { logs: join(root, 'logs', 'live', `${step}-${timestamp()}`), recording: undefined }
    : offlinePlace(root, step, settings.replay, recorded)
  const name = settings.live ? step : join('offline', basename(place.logs))
  const workdir = settings.workdir
    ? resolve(settings.workdir)
    : join(root, '.workspace', name)
  if (!settings.live) {
    lock(join(root, '.workspace', name))
    const old = settings.workdir ? [] : [workdir, `${workdir}.worktrees`]
    for (const folder of old) rmSync(folder, { recursive: true, force: true })
  }
  const isNew = !existsSync(workdir)
  try {
    if (isNew) mkdirSync(workdir, { recursive: true })
    const app = join(root, 'steps', 'support', 'login-app') // to work on from 05 on
    if (isNew && number >= '05') cpSync(app, workdir, { recursive: true })
    readdirSync(workdir)
  } catch (error) {
    throw new Error(`The working directory cannot be used: ${(error as Error).message}`)
  }
  const opened = { ...place, step, number, workdir: realpathSync(workdir), isNew }
  try {
    const logs = settings.continued
      ? lastRun(dirname(place.logs), step)
      : emptyFolder(place.logs, settings.live !== undefined)
    if (settings.live) lock(join(logs, 'parent.log'))
    return { ...opened, logs }
  } catch (error) {
    if (settings.continued) throw error
    return { ...opened, broken: error as Error }
  }
}

/**
 * The number of the step that a file's header names (`04 · …`) or builds on, so that a
 * changed copy runs like its original, and the folder of its recording.
 */
function findLesson(filename: string, folder: string) {
  const { name } = parse(filename)
  const [header] = readFileSync(filename, 'utf8').split('*/')
  const named = /^[ /*]*(\d\d) · /m.exec(header) ?? /^(\d\d)-/.exec(name)
  const base = /^[ /*]*Builds on +(\d\d)/m.exec(header)
  const numbers = [named, base].flatMap((found) => found?.[1] ?? [])
  const names = existsSync(folder) ? readdirSync(folder) : []
  const recordingOf = (number: string) =>
    names.find((other) => other.startsWith(`${number}-`) && !other.includes('.'))
  const number = numbers.find(recordingOf) ?? numbers[0]
  if (number) {
    const own = names.includes(name) ? name : recordingOf(number)
    return { number, recorded: own && join(folder, own) }
  }
  throw new Error(
    `${basename(filename)} does not say which step it is like: give it a header that ` +
      'begins with "04 · " or has a line "Builds on 04".',
  )
}

function offlinePlace(root: string, step: string, replayed?: string, recorded?: string) {
  const folder = resolve(replayed ?? recorded ?? '')
  if (!replayed && !recorded) {
    const advice = 'replay another one with --replay FOLDER.'
    throw new Error(`There is no recording of ${step}: ${advice} ${HOW_TO_GO_LIVE}`)
  }
  const lanes = readFolder(folder)
  let name = replayed ? `${step}.replay` : step
  if (replayed && basename(folder).startsWith(step)) name = basename(folder)
  // A replay never writes over what it replays.
  while (join(root, 'logs', name) === realpathSync(folder)) name += '.replay'
  return { logs: join(root, 'logs', name), recording: { folder, lanes } }
}

function lastRun(folder: string, step: string): string {
  const names = existsSync(folder) ? readdirSync(folder).sort() : []
  const last = names.findLast((name) => {
    const path = join(folder, name, 'parent.log')
    // One that was killed before its first line was written holds nothing.
    const isBegun = () => existsSync(path) && readFileSync(path).includes('\n')
    const isOwn = name.startsWith(`${step}-`) && /^[\d-]+$/.test(name.slice(step.length))
    return isOwn && isBegun()
  })
  if (last) return join(folder, last)
  throw new Error(`There is no live run of ${step} to continue.`)
}

/** Makes a folder without lanes: old ones go, or a new name is found where none may. */
function emptyFolder(path: string, keep: boolean): string {
  mkdirSync(dirname(path), { recursive: true })
  for (let n = 1; keep; n++) {
    const free = n === 1 ? path : `${path}-${n}`
    try {
      mkdirSync(free)
      return free
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== 'EEXIST') throw error
    }
  }
  mkdirSync(path, { recursive: true })
  const old = readdirSync(path).filter((name) => name.endsWith('.log'))
  for (const name of old) rmSync(join(path, name))
  return path
}

/** Now and here, as 2026-03-01-143000. */
function timestamp(): string {
  const here = Date.now() - new Date().getTimezoneOffset() * 60_000
  return new Date(here).toISOString().slice(0, 19).replace('T', '-').replaceAll(':', '')
}
