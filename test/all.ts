/**
 * Runs every test file, three at a time: much of a test is waiting for processes. They are
 * listed here, since `node --test` on Node 20 expands no globs, and with a folder and a
 * loader runs nothing and still passes.
 */
import { readdirSync } from 'node:fs'
import { join } from 'node:path'
import { run } from 'node:test'
import { spec } from 'node:test/reporters'

const names = readdirSync(import.meta.dirname).filter((name) => name.endsWith('.test.ts'))
const files = names.sort().map((name) => join(import.meta.dirname, name))
let tests = 0

run({ files, concurrency: 3 })
  .on('test:pass', () => {
    tests += 1
  })
  .on('test:fail', () => {
    process.exitCode = 1
  })
  .on('end', () => {
    if (tests < files.length) {
      console.error(`Only ${tests} tests ran, from ${files.length} files.`)
      process.exitCode = 1
    }
  })
  .compose(new spec())
  .pipe(process.stdout)
