/** `npm run bench`: what step 04 costs beside the shortest loop. Prints, never judges. */
import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import process from 'node:process'
import { pathToFileURL } from 'node:url'
import { calls, makeRoot, startServer, text } from './server.ts'

const TURNS = 1000
const END = 100 // turns that are looked at by themselves, at the beginning and at the end
const BATCH = 10
const PAIRS = 2
const STARTS = 7

/** One number for step 04 and one for what it is compared with. */
type Pair = [number, number]
type Memory = { heap: number; peak: number }
/** Milliseconds of each turn, and the memory before the turns that have a number here. */
type Run = { times: number[]; memory: Record<number, Memory> }

const PROBE = pathToFileURL(join(import.meta.dirname, 'bench-probe.ts')).href
const root = makeRoot()
const file = { name: 'note.txt', text: 'A small file, read once in every turn.\n' }
process.on('exit', () => {
  for (const child of children) child.kill('SIGKILL')
})
const children = new Set<ChildProcess>()

/** Starts a program as `node --import tsx` does, in `root`. */
function start(path: string, args: string[], env = {}, probe: string[] = []) {
  const child = spawn(
    process.execPath,
    ['--import', 'tsx', ...probe.flatMap((url) => ['--import', url]), path, ...args],
    {
      cwd: root,
      env: { ...process.env, ...env },
      stdio: ['ignore', 'ignore', 'inherit', ...(probe.length > 0 ? ['ipc' as const] : [])],
    },
  )
  children.add(child)
  const ended = once(child, 'close').then(([code]) => {
    children.delete(child)
    if (code !== 0) throw new Error(`${path} ended with exit code ${code}`)
  })
  return { child, ended }
}

/** Each of two callers waits here until the other one comes. */
function takeTurns() {
  let next = () => {}
  return (wait: boolean) => {
    next()
    return new Promise<void>((go) => {
      next = go
      if (!wait) go()
    })
  }
}
