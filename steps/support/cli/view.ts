/** `npm run view 04` shows a run's lanes in columns, `npm run view 02 04` compares. */
import { existsSync, readdirSync } from 'node:fs'
import { join, parse, relative } from 'node:path'
import process, { env, stderr, stdout } from 'node:process'
import { readFolder } from '../base/lane-file.ts'
import { renderRun } from './columns.ts'
import { labelsOf, renderComparison } from './compare.ts'
import { wrap } from './wrap.ts'

const ROOT = join(import.meta.dirname, '../../..')
const RECORDED = join(ROOT, 'logs/recorded')
const usage = () => `Usage: npm run view 04       one run in columns
       npm run view 02 04    two runs compared
A run is a step's number or name (its last offline run, else the recording), or a folder
that holds a parent.log.
Recorded: ${readdirSync(RECORDED).sort().join(', ')}`

/** Reads the run that a step's number or name, or a path, stands for. */
function openRun(argument: string) {
  const number = `${argument.padStart(2, '0')}-`
  const step = readdirSync(join(ROOT, 'steps')).find((file) => file.startsWith(number))
  const name = step ? parse(step).name : argument
  const own = [join(ROOT, 'logs', name), join(RECORDED, name)]
  const places = [...own.map((path) => relative('', path)), argument]
  const folder = places.find((path) => existsSync(join(path, 'parent.log')))
  if (!folder) throw new Error(`There is no run ${JSON.stringify(argument)}.\n${usage()}`)
  const lanes = readFolder(folder)
  const { mode, model } = lanes[0].header
  return { lanes, where: `${folder} (${mode}, ${model})` }
}

function view(names: string[]): string[] {
  if (names.includes('--help')) return [usage()]
  if (names.length !== 1 && names.length !== 2) throw new Error(usage())
  const width = Math.max(20, Number(stdout.columns || env.COLUMNS) || 80)
  const [a, b] = names.map(openRun)
  if (!b) return [...wrap(a.where, width, 9), '', ...renderRun(a.lanes, width)]
  const [one, two] = labelsOf(a.lanes, b.lanes)
  const where = wrap(`${one}: ${a.where}\n${two}: ${b.where}`, width, 9)
  return [...where, '', ...renderComparison(a.lanes, b.lanes, width)]
}

function fail({ code, message }: NodeJS.ErrnoException) {
  if (code === 'EPIPE') return // `npm run view 04 | head` closes the pipe early
  stderr.write(`${message}\n`)
  process.exitCode = 1
}
stdout.on('error', fail)
try {
  stdout.write(`${view(process.argv.slice(2)).join('\n')}\n`)
} catch (error) {
  fail(error as Error)
}
