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
import { basename, dirname, join, resolve } from 'node:path'
import { HOW_TO_GO_LIVE } from '../base/errors.ts'
import { type LaneFile, readFolder } from '../base/lane-file.ts'
import { lock } from './lock.ts'
import type { Settings } from './settings.ts'

export type Place = {
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
 * Finds and makes them. Offline everything is fresh: the working directory is emptied,
 * the last run's lanes go. Live nothing is lost: each run's log gets a folder of its own,
 * and the working directory stays.
 *
 * @throws {Error} when there is no recording, or another process is in the folder
 */
export function openPlace(root: string, step: string, settings: Settings): Place {
  if (settings.continued && step < '09') {
    throw new Error('--continue comes with step 09: this step starts anew each time.')
  }
  const place = settings.live
    ? { logs: join(root, 'logs', 'live', `${step}-${timestamp()}`), recording: undefined }
    : offlinePlace(root, step, settings.replay)
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
    if (isNew) startingFiles(root, step, workdir)
    readdirSync(workdir)
  } catch (error) {
    throw new Error(`The working directory cannot be used: ${(error as Error).message}`)
  }
  const opened = { ...place, workdir: realpathSync(workdir), isNew }
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

/** From step 05 on there is a small app to work on. */
function startingFiles(root: string, step: string, workdir: string): void {
  mkdirSync(workdir, { recursive: true })
  const app = join(root, 'steps', 'support', 'login-app')
  if (step >= '05') cpSync(app, workdir, { recursive: true })
}

function offlinePlace(root: string, step: string, replayed?: string) {
  const folder = replayed ? resolve(replayed) : join(root, 'logs', 'recorded', step)
  if (!replayed && !existsSync(folder)) {
    const advice = 'replay another one with --replay FOLDER.'
    throw new Error(`There is no recording of ${step}: ${advice} ${HOW_TO_GO_LIVE}`)
  }
  const lanes = readFolder(folder)
  let name = basename(folder).startsWith(step) ? basename(folder) : `${step}.replay`
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
    return name.startsWith(`${step}-`) && isBegun()
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

function timestamp(): string {
  const now = new Date()
  const two = (n: number) => String(n).padStart(2, '0')
  const date = [now.getFullYear(), two(now.getMonth() + 1), two(now.getDate())].join('-')
  const time = [now.getHours(), now.getMinutes(), now.getSeconds()].map(two).join('')
  return `${date}-${time}`
}
