/** A step on a terminal, typed at as a reader does. */
import assert from 'node:assert/strict'
import { spawn, spawnSync } from 'node:child_process'
import { once } from 'node:events'
import { setTimeout as sleep } from 'node:timers/promises'
import { compile } from './root.ts'

/** Why no terminal can be had here, if so: other scripts than util-linux's differ. */
export const noTerminal = () => {
  const { stdout } = spawnSync('script', ['--version'], { encoding: 'utf8' })
  return !stdout?.includes('util-linux') && 'needs script of util-linux'
}

/**
 * A step on a terminal that `script` provides: compiled, unless another `program` is to
 * run it.
 */
export function onTerminal(
  t: { after: (done: () => void) => void },
  step: string,
  root: string,
  { program = '', args = '', columns = 0, env = {} } = {},
) {
  const size = columns > 0 ? `stty cols ${columns}; ` : ''
  const source = `steps/${step}.ts`
  const run = program
    ? `${program} ${source}`
    : `'${process.execPath}' ${compile(root, source)}`
  const command = `${size}exec ${run} ${args}`
  const own = { PATH: process.env.PATH, HOME: root, NO_COLOR: '1', TERM: 'xterm' }
  const options = { cwd: root, env: { ...own, ...env } }
  const child = spawn('script', ['-qefc', command, '/dev/null'], options)
  t.after(() => {
    child.kill('SIGKILL')
  })
  let screen = ''
  let seen = 0
  child.stdout.setEncoding('utf8').on('data', (piece) => {
    screen += piece
  })
  const code = once(child, 'close').then(([code]) => code as number)
  return {
    code,
    screen: () => screen,
    type: (keys: string) => child.stdin.write(keys),
    /** Waits until this is shown, behind what was waited for before. */
    async shows(words: string) {
      for (const start = Date.now(); !screen.includes(words, seen); await sleep(10)) {
        if (Date.now() - start > 25_000) assert.fail(`not shown: ${words}\n${screen}`)
      }
      seen = screen.indexOf(words, seen) + words.length
    },
  }
}
