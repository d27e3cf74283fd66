/** One process at a time: a lock is a file that holds its owner's pid. */
import { mkdirSync, readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs'
import { basename, dirname, join } from 'node:path'

/**
 * Takes `path` until this process ends, by the file `<path>.lock`. A dead process's lock
 * goes to exactly one of those who want it.
 *
 * @throws {Error} naming the process that holds it, and the file
 */
export function lock(path: string): void {
  mkdirSync(dirname(path), { recursive: true })
  const file = `${path}.lock`
  if (!create(file)) takeOver(file)
  process.on('exit', () => rmSync(file, { force: true }))
}

function takeOver(file: string): void {
  const owner = read(file)
  if (isAlive(owner)) throw inUse(file)
  // Who creates this one may replace the dead owner's, unless somebody just did.
  const claim = `${file}.${owner}`
  if (!create(claim)) throw inUse(claim)
  if (read(file) !== owner) {
    rmSync(claim)
    throw inUse(file)
  }
  renameSync(claim, file)
}

/** Creates a file with this process's pid; false if there is one already. */
function create(file: string): boolean {
  return unless('EEXIST', false, () => {
    writeFileSync(file, String(process.pid), { flag: 'wx' })
    return true
  })
}

/** The pid in a file; '' if it is just being written, or the file is gone again. */
const read = (file: string) => unless('ENOENT', '', () => readFileSync(file, 'utf8'))

/** What `work` returns, or `otherwise` if it fails with this code. */
function unless<T>(code: string, otherwise: T, work: () => T): T {
  try {
    return work()
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === code) return otherwise
    throw error
  }
}

function isAlive(pid: string): boolean {
  if (!/^\d+$/.test(pid)) return true
  return unless('ESRCH', false, () =>
    unless('EPERM', true, () => process.kill(Number(pid), 0)),
  )
}

function inUse(file: string): Error {
  const name = join(basename(dirname(file)), basename(file).replace(/\.lock.*$/, ''))
  const pid = read(file)
  const who = pid ? `process ${pid}` : 'another process'
  const how = `wait until it has ended. If it has, delete ${file}.`
  return new Error(`${name} is in use by ${who}: ${how}`)
}
