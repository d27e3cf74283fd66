/** Imports every test: a folder given to `node --test` may run nothing and still pass. */
import { readdirSync } from 'node:fs'

const files = readdirSync(import.meta.dirname).filter((name) => name.endsWith('.test.ts'))
if (files.length === 0) throw new Error('There are no tests.')
for (const name of files.sort()) await import(`./${name}`)
