/** The bodies of read_file, write_file and edit_file, kept to the working directory. */
import { isUtf8 } from 'node:buffer'
import { randomUUID } from 'node:crypto'
import * as fs from 'node:fs'
import nodePath, { basename, dirname, isAbsolute, join, resolve } from 'node:path'
import type { Tool, ToolContext, ToolInput } from './tool.ts'

/** What read_file returns at most, in UTF-16 units. */
const MAX_CHARS = 50_000
/** What is looked at in a file: read_file shows the beginning, edit_file refuses more. */
const MAX_BYTES = 10_000_000
/** Beyond so many occurrences the ones that overlap would take too long to count. */
const MANY = 100

/**
 * The text of `path`, line ends as they are, without a BOM; with `limit` (from 1 up) its
 * first lines. A last line counts what is left out.
 *
 * @throws {Error} for what is missing, no UTF-8 text, or outside `workdir`
 */
export function runReadFile(
  { path, limit }: ToolInput,
  { workdir }: ToolContext,
): string {
  const { text, bom, size } = attempt('read', path, () => load(path, workdir))
  const end = Math.min(text.split('\n', limit).join('\n').length + 1, MAX_CHARS)
  const shown = text.slice(0, end).replace(/[\uD800-\uDBFF]$/, '')
  const rest = text.slice(shown.length)
  if (rest !== '') {
    const lines =
      size > MAX_BYTES ? '' : `${count(lineAt(rest, rest.length - 1), 'line')}, `
    const bytes = count(size - Buffer.byteLength(bom + shown), 'byte')
    return `${shown}${shown.endsWith('\n') ? '' : '\n'}[left out: ${lines}${bytes}]`
  }
  if (shown.trim() !== '') return shown
  return shown === '' ? '(empty file)' : `(only white space, ${count(size, 'byte')})`
}

/**
 * Makes `content` all that `path` holds. Parent folders are made; a file that was there
 * keeps its mode.
 *
 * @throws {Error} if it cannot be written; what was there is then unchanged
 */
export function runWriteFile(
  { path, content }: ToolInput,
  { workdir }: ToolContext,
): string {
  attempt('write', path, () => save(path, workdir, content))
  return `Wrote ${count(Buffer.byteLength(content), 'byte')} to ${path}`
}

/**
 * Replaces the one occurrence of `old_text` in `path`, literally. LF and CRLF count as
 * equal: lines that stay keep their end, new ones get that of the place.
 *
 * @throws {Error} for none or several occurrences, and for what read_file refuses
 */
export function runEditFile(input: ToolInput, { workdir }: ToolContext): string {
  const { path, old_text, new_text } = input
  if (old_text === '') throw new Error('old_text is empty: it must name what to replace')
  const { text, bom, size } = attempt('read', path, () => load(path, workdir))
  if (size > MAX_BYTES) throw new Error(`${path} has ${size} bytes: edit it with bash`)
  const [lf, old] = [toLf(text), toLf(old_text)]
  if (old === toLf(new_text)) {
    throw new Error('old_text equals new_text, but for line ends: nothing would change')
  }
  const found = occurrences(lf, old)
  if (found.length === 0) {
    const near = squash(old) !== '' && squash(lf).includes(squash(old))
    const but = near ? ', except with other white space' : ''
    throw new Error(
      `old_text is not in ${path}${but}: copy it exactly as read_file shows it`,
    )
  }
  const lines = [...new Set(found.slice(0, 10).map((at) => lineAt(lf, at)))].join(', ')
  if (found.length > 1) {
    const where = `on line ${lines}${found.length > 10 ? ', …' : ''}`
    const times = `${found.length} times in ${path}, ${where}`
    throw new Error(`old_text is ${times}: add lines around it`)
  }
  const start = withCrs(text, found[0])
  const end = withCrs(text, found[0] + old.length)
  const lineEnd = /\r?\n/.exec(text.slice(start) + text.slice(0, start))?.[0]
  const fresh = lineEnd
    ? keepLineEnds(text.slice(start, end), new_text, lineEnd)
    : new_text
  const edited = bom + text.slice(0, start) + fresh + text.slice(end)
  attempt('write', path, () => save(path, workdir, edited))
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
  input_schema: {
    type: 'object',
    properties: { path: { type: 'string' }, content: { type: 'string' } },
    required: ['path', 'content'],
  },
  run: runWriteFile,
}

export const editFile: Tool = {
  name: 'edit_file',
  description:
    'Replace old_text, which must occur exactly once in the file, by new_text.',
  input_schema: {
    type: 'object',
    properties: {
      path: { type: 'string' },
      old_text: { type: 'string' },
      new_text: { type: 'string' },
    },
    required: ['path', 'old_text', 'new_text'],
  },
  run: runEditFile,
}

/** Where `wanted` begins in `text`, each time; two that overlap count, up to MANY. */
function occurrences(text: string, wanted: string): number[] {
  const found: number[] = []
  let at = text.indexOf(wanted)
  while (at !== -1) {
    found.push(at)
    at = text.indexOf(wanted, at + (found.length < MANY ? 1 : wanted.length))
  }
  return found
}

/** The place in `text` that `index` is in `toLf(text)`. */
function withCrs(text: string, index: number): number {
  let at = text.indexOf('\r\n')
  for (; at !== -1 && at < index; at = text.indexOf('\r\n', at + 1)) index++
  return index
}

/** `now`, with the line ends of `was` for lines that are in both, else with `lineEnd`. */
function keepLineEnds(was: string, now: string, lineEnd: string): string {
  const [old, fresh, ends] = [was.split(/\r?\n/), now.split(/\r?\n/), was.match(/\r?\n/g)]
  const shift = old.length - fresh.length
  return fresh.reduce((text, line, next) => {
    const same = [next - 1, next - 1 + shift].find((i) => old[i] === fresh[next - 1])
    return text + (ends?.[same ?? -1] ?? lineEnd) + line
  })
}

/** Whether `inner` is the folder `outer` or in it, going by the names alone. */
export function isInside(outer: string, inner: string, api = nodePath): boolean {
  const way = api.relative(outer, inner)
  return way !== '..' && !way.startsWith(`..${api.sep}`) && !api.isAbsolute(way)
}

/** The file that `path` means, links followed. */
function locate(path: string, workdir: string): string {
  if (path.trim() === '' || path.includes('\0')) {
    throw new Error(
      `path ${JSON.stringify(path)} names no file: it is empty or has a NUL`,
    )
  }
  const [root, named] = [rootOf(workdir), resolve(workdir, path)]
  // By name first: a UNC path outside must not even be looked up on the network.
  const outside = !isInside(resolve(workdir), named) && !isInside(root, named)
  const target = outside ? named : realPath(named)
  if (isInside(root, target)) return target
  throw new Error(`${path} is outside: paths stay inside the working directory`)
}

function rootOf(workdir: string): string {
  try {
    return fs.realpathSync.native(workdir)
  } catch (cause) {
    throw new Error(`The working directory ${workdir} is gone`, { cause })
  }
}

/** Where `path` leads, also by links to what is not there yet. */
function realPath(path: string, links = 0): string {
  try {
    return fs.realpathSync.native(path)
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'ENOENT' || links > 40) throw error
    const here = join(realPath(dirname(path), links), basename(path))
    if (!fs.lstatSync(here, { throwIfNoEntry: false })?.isSymbolicLink()) return here
    const to = fs.readlinkSync(here) // not `join`: `a/..` is elsewhere if a is a link
    return realPath(isAbsolute(to) ? to : `${dirname(here)}/${to}`, links + 1)
  }
}

/** A file's text, BOM ('' if none) and size in bytes; of a huge one the beginning. */
function load(
  path: string,
  workdir: string,
): { text: string; bom: string; size: number } {
  const target = locate(path, workdir)
  const size = fileAt(path, target)?.size
  if (size === undefined) throw new Error(`${path} does not exist. ${nearby(target)}`)
  const bytes = size > MAX_BYTES ? beginning(target) : fs.readFileSync(target)
  if (/^(\xFF\xFE|\xFE\xFF)/.test(bytes.toString('latin1', 0, 2))) {
    throw new Error(`${path} is UTF-16 text, not UTF-8: convert it with bash first`)
  }
  if (bytes.includes(0)) throw new Error(`${path} is a binary file: examine it with bash`)
  if (!isUtf8(bytes)) {
    throw new Error(`${path} is not valid UTF-8: convert it with bash first`)
  }
  const text = bytes.toString()
  const bom = text.startsWith('\uFEFF') ? '\uFEFF' : ''
  return { text: text.slice(bom.length), bom, size }
}

function beginning(target: string): Buffer {
  const file = fs.openSync(target, 'r')
  try {
    const bytes = Buffer.alloc(MAX_BYTES + 1)
    let end = Math.min(fs.readSync(file, bytes), MAX_BYTES)
    while ((bytes[end] & 0xc0) === 0x80) end -= 1 // not within a character
    return bytes.subarray(0, end)
  } finally {
    fs.closeSync(file)
  }
}

/** Writes to a file beside it and renames that: nobody ever finds half a file. */
function save(path: string, workdir: string, content: string): void {
  const target = locate(path, workdir)
  if (/[/\\]$/.test(path)) throw new Error(`${path} names a folder: add a file's name`)
  const old = fileAt(path, target)
  if (old) fs.closeSync(fs.openSync(target, 'r+')) // a rename would not ask
  fs.mkdirSync(dirname(target), { recursive: true })
  const temp = join(dirname(target), `.${randomUUID()}.tmp`)
  try {
    fs.writeFileSync(temp, content, { flag: 'wx' })
    if (old) fs.chmodSync(temp, old.mode & 0o7777)
    fs.renameSync(temp, target)
  } finally {
    fs.rmSync(temp, { force: true })
  }
}

/** What is at `target`, `undefined` for nothing; all but a file is an error. */
function fileAt(path: string, target: string): fs.Stats | undefined {
  const stats = fs.statSync(target, { throwIfNoEntry: false })
  if (!stats) return undefined
  if (stats.isDirectory())
    throw new Error(`${path} is a folder, no file: list it with bash`)
  if (!stats.isFile()) throw new Error(`${path} is a pipe, socket or device, no file`)
  return stats
}

/** What there is instead, for a model that got a name wrong. */
function nearby(target: string): string {
  const folder = dirname(target)
  if (!fs.existsSync(folder)) return 'Nor does its folder.'
  const names = fs.readdirSync(folder).sort()
  const list = names.slice(0, 20).join(', ') || 'nothing'
  return `Its folder has: ${list}${names.length > 20 ? ', …' : ''}`
}

/** Says what the system refuses in words, and with the path as the model gave it. */
function attempt<T>(what: string, path: string, run: () => T): T {
  try {
    return run()
  } catch (error) {
    const { code, message } = error as NodeJS.ErrnoException
    if (code === undefined) throw error
    const inTheWay = code === 'ENOTDIR' || code === 'EEXIST'
    const why = inTheWay ? 'a part of it is a file, no folder' : message.split(', ')[0]
    throw new Error(`Cannot ${what} ${path}: ${why}`, { cause: error })
  }
}

const toLf = (text: string) => text.replaceAll('\r\n', '\n')
const lineAt = (text: string, index: number) => text.slice(0, index).split('\n').length
const squash = (text: string) => text.replace(/\s+/g, ' ').trim()
const count = (n: number, what: string) => `${n} ${what}${n === 1 ? '' : 's'}`
