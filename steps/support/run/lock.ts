/** One process at a time: lock files that a dead process cannot hold on to. */
import { execFileSync } from 'node:child_process'
import {
  mkdirSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  writeFileSync,
} from 'node:fs'
import { basename, dirname, join } from 'node:path'

/**
 * Takes `path` until this process ends, by the file `<path>.lock.<n>`. A dead process's
 * lock n is taken over by creating n + 1, which the file system grants to exactly one.
 *
 * @throws {Error} naming the process that holds it
 */
export function lock(path: string): void {
  mkdirSync(dirname(path), { recursive: true })
  const found = locks(path)
  const holder = found.find(isHeld)
  const mine = `${path}.lock.${1 + Math.max(0, ...found.map(number))}`
  if (holder) throw busy(path, holder)
  try {
    const me = { pid: process.pid, start: startOf(process.pid) }
    writeFileSync(mine, JSON.stringify(me), { flag: 'wx' })
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'EEXIST') throw busy(path, mine)
    throw error
  }
  process.on('exit', () => rmSync(mine, { force: true }))
  const others = locks(path).filter((file) => file !== mine)
  const other = others.find(isHeld)
  if (other) {
    rmSync(mine, { force: true })
    throw busy(path, other)
  }
  for (const file of others) rmSync(file, { force: true })
}

const number = (file: string) => Number(file.split('.').pop())

function locks(path: string): string[] {
  const start = `${basename(path)}.lock.`
  const files = readdirSync(dirname(path)).filter((name) => name.startsWith(start))
  return files.map((name) => join(dirname(path), name))
}

function busy(path: string, file: string): Error {
  const { pid } = read(file) ?? {}
  const who = pid ? `process ${pid}` : 'another process'
  const name = join(basename(dirname(path)), basename(path))
  return new Error(`${name} is in use by ${who}: wait until it has ended.`)
}

function read(file: string): { pid: number; start: string } | undefined {
  try {
    return JSON.parse(readFileSync(file, 'utf8'))
  } catch {
    return undefined // gone, or just being written
  }
}

function isHeld(file: string): boolean {
  const holder = read(file)
  if (holder) return startOf(holder.pid) === holder.start && holder.start !== ''
  const age = Date.now() - (statSync(file, { throwIfNoEntry: false })?.mtimeMs ?? 0)
  return age < 5000 // its owner is between creating and writing it, or died there
}

/** Tells a process from a later one with the same pid; '' when there is none. */
function startOf(pid: number): string {
  try {
    process.kill(pid, 0)
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'EPERM') return ''
  }
  try {
    if (process.platform === 'linux') {
      const boot = readFileSync('/proc/sys/kernel/random/boot_id', 'utf8').trim()
      const stat = readFileSync(`/proc/${pid}/stat`, 'utf8')
      const fields = stat.slice(stat.lastIndexOf(') ') + 2).split(' ')
      // Killed, but not yet waited for: it never writes again.
      return /[ZX]/.test(fields[0]) ? '' : `${boot} ${fields[19]}`
    }
    if (process.platform === 'darwin') {
      // Alike in every terminal: the time is printed by locale and zone.
      const env = { ...process.env, LC_ALL: 'C', TZ: 'UTC' }
      const options = { env, encoding: 'utf8', stdio: 'pipe' } as const
      return execFileSync('/bin/ps', ['-o', 'lstart=', '-p', `${pid}`], options).trim()
    }
  } catch {
    return '' // it ended meanwhile
  }
  return 'alive'
}
