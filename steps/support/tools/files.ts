/** read_file, write_file and edit_file, kept to the working directory. */
import { isUtf8 } from 'node:buffer'
import { randomUUID } from 'node:crypto'
import * as fs from 'node:fs'
import nodePath, { basename, dirname, join, resolve } from 'node:path'
import type { Tool, ToolContext, ToolInput } from './tool.ts'
import { count, texts } from './tool.ts'

const MAX_CHARS = 50_000 // what read_file returns at most, in UTF-16 units

/**
 * The text of `path`, line ends as they are, without a BOM; with `limit` (from 1 up) its
 * first lines. A last line counts what is left out.
 *
 * @throws {Error} for what is missing, too large, no UTF-8 text, or outside `workdir`
 */
export function runReadFile({ path, limit }: ToolInput, { workdir }: ToolContext) {
  const { text } = load(path, workdir)
  const most = text.slice(0, MAX_CHARS).replace(/[\uD800-\uDBFF]$/, '') // no half pair
  const shown = most.slice(0, most.split('\n', limit).join('\n').length + 1)
  if (shown === text) return text
  const left = count(Buffer.byteLength(text.slice(shown.length)), 'byte')
  return `${shown}${shown.endsWith('\n') ? '' : '\n'}[${left} left out]`
}

/**
 * Makes `content` all that `path` holds. Parent folders are made; a file that was there
 * keeps its mode.
 *
 * @throws {Error} if it cannot be written; what was there is then unchanged
 */
export function runWriteFile({ path, content }: ToolInput, { workdir }: ToolContext) {
  save(path, workdir, content)
  return `Wrote ${count(Buffer.byteLength(content), 'byte')} to ${path}`
}

/**
 * Replaces the one occurrence of `old_text` in `path`, literally. Both texts are taken to
 * have the line ends of the file.
 *
 * @throws {Error} for none or several occurrences, and for what read_file refuses
 */
export function runEditFile(input: ToolInput, { workdir }: ToolContext) {
  const { path } = input
  const { text, bom } = load(path, workdir)
  const lineEnd = /\r?\n/.exec(text)?.[0] ?? '\n'
  const own = (given: string) => given.toWellFormed().replace(/\r?\n/g, lineEnd)
  const [old, fresh] = [own(input.old_text), own(input.new_text)]
  if (old === '') throw new Error('old_text is empty: it must name what to replace')
  if (old === fresh) throw new Error('old_text equals new_text: nothing would change')
  const found = placesOf(old, text)
  const [start] = found
  if (start === undefined) {
    throw new Error(`old_text is not in ${path}: copy it exactly as read_file shows it`)
  }
  const lineAt = (index: number) => placesOf('\n', text.slice(0, index)).length + 1
  const lines = [...new Set(found.slice(0, 10).map(lineAt))].join(', ')
  if (found.length > 1) {
    const where = `on line ${lines}${found.length > 10 ? ', …' : ''}`
    const times = `${found.length} times in ${path}, ${where}`
    throw new Error(`old_text is ${times}: add lines around it`)
  }
  save(path, workdir, bom + text.slice(0, start) + fresh + text.slice(start + old.length))
  return `Edited ${path}, line ${lines}`
}

export const readFile: Tool = {
  name: 'read_file',
  description: 'Read a text file, or its first lines up to limit.',
  input_schema: {
    type: 'object',
    properties: { path: { type: 'string' }, limit: { type: 'integer', minimum: 1 } },
    required: ['path'],
  },
  run: runReadFile,
}

export const writeFile: Tool = {
  name: 'write_file',
  description: 'Write a text file; folders on its path are made.',
  input_schema: texts('path', 'content'),
  run: runWriteFile,
}

export const editFile: Tool = {
  name: 'edit_file',
  description:
    'Replace old_text, which must occur exactly once in the file, by new_text.',
  input_schema: texts('path', 'old_text', 'new_text'),
  run: runEditFile,
}

/** Where `wanted` begins in `text`, each time; two may overlap. */
function placesOf(wanted: string, text: string): number[] {
  const found: number[] = []
  for (let at = text.indexOf(wanted); at !== -1; at = text.indexOf(wanted, at + 1)) {
    found.push(at)
  }
  return found
}

/** Whether `inner` is the folder `outer` or in it, going by the names alone. */
export function isInside(outer: string, inner: string, api = nodePath): boolean {
  const way = api.relative(outer, inner)
  return way !== '..' && !way.startsWith(`..${api.sep}`) && !api.isAbsolute(way)
}

/** The real path of a working directory; throws if it is gone. */
export function rootOf(workdir: string): string {
  if (fs.existsSync(workdir)) return fs.realpathSync.native(workdir)
  throw new Error(`The working directory ${workdir} is gone`)
}

/** The file that `path` means, links followed, and what is there; only a file may be. */
function locate(path: string, workdir: string) {
  const root = rootOf(workdir)
  const target = realPath(resolve(workdir, path))
  if (!isInside(root, target)) {
    throw new Error(`${path} is outside: paths stay inside the working directory`)
  }
  const stats = fs.statSync(target, { throwIfNoEntry: false })
  if (stats?.isFile() === false || /[/\\]$/.test(path)) {
    throw new Error(`${path || 'A blank path'} is a folder or device, no file: use bash`)
  }
  return { target, stats }
}

/** Where `path` leads, be its end there yet or not; a link to nothing is an error. */
function realPath(path: string): string {
  if (fs.lstatSync(path, { throwIfNoEntry: false })) return fs.realpathSync.native(path)
  return join(realPath(dirname(path)), basename(path))
}

/** A file's text without its BOM ('' if it has none). */
function load(path: string, workdir: string): { text: string; bom: string } {
  return inWords('read', path, () => {
    const bytes = fs.readFileSync(locate(path, workdir).target)
    if (!isUtf8(bytes) || bytes.includes(0)) {
      throw new Error(`${path} is binary, UTF-16 or other text than UTF-8: use bash`)
    }
    const text = bytes.toString()
    const bom = text.startsWith('\uFEFF') ? '\uFEFF' : ''
    return { text: text.slice(bom.length), bom }
  })
}

/** Writes to a file beside it and renames that: nobody ever finds half a file. */
function save(path: string, workdir: string, content: string): void {
  inWords('write', path, () => {
    const { target, stats } = locate(path, workdir)
    if (stats) fs.closeSync(fs.openSync(target, 'r+')) // a rename would not ask
    fs.mkdirSync(dirname(target), { recursive: true })
    const temp = join(dirname(target), `.${randomUUID()}.tmp`)
    try {
      fs.writeFileSync(temp, content, { flag: 'wx' })
      if (stats) fs.chmodSync(temp, stats.mode)
      fs.renameSync(temp, target)
    } finally {
      fs.rmSync(temp, { force: true })
    }
  })
}

/** What the system refuses, in its words but with the path as the model gave it. */
function inWords<T>(what: string, path: string, run: () => T): T {
  try {
    return run()
  } catch (cause) {
    const { code, message } = cause as NodeJS.ErrnoException
    if (code === undefined) throw cause
    throw new Error(`Cannot ${what} ${path}: ${message.split(', ')[0]}`, { cause })
  }
}
