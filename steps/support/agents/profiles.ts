/** Agent profiles: Markdown files that say what a subagent is and which tools it has. */
import { existsSync, readdirSync, readFileSync } from 'node:fs'
import { homedir } from 'node:os'
import { join } from 'node:path'
import { complain } from '../terminal/screen.ts'
import type { Tool } from '../tools/tool.ts'

export type Effort = 'low' | 'medium' | 'high' | 'xhigh' | 'max'

export type Profile = {
  name: string
  /** What the parent's model chooses by. */
  description: string
  /** Names of tools; left out means all that the parent has, but for task. */
  tools?: string[]
  model?: string
  effort?: Effort
  /** The most time a run may take, in milliseconds. */
  timeout?: number
  /** What is added to the child's system prompt. */
  body: string
}

const EFFORTS = ['low', 'medium', 'high', 'xhigh', 'max']
const KEYS = ['name', 'description', 'tools', 'model', 'effort', 'timeout']

/**
 * Reads the profiles once: the project's `.agents/` win over the user's `~/.agents/`
 * (live only), and those over the bundled ones. A file that is not understood is named,
 * with line and reason, and is not used at all.
 *
 * @param tools the tools that a profile may name
 */
export function loadProfiles(
  { live, workdir }: { live: boolean; workdir: string },
  tools: Tool[],
): Map<string, Profile> {
  const toolNames = tools.map(({ name }) => name)
  const bundled = join(import.meta.dirname, '../../agents')
  const user = live ? [join(homedir(), '.agents')] : []
  const folders = [bundled, ...user, join(workdir, '.agents')]
  const profiles = new Map<string, Profile>()
  for (const folder of folders) {
    for (const [name, profile] of loadFolder(folder, toolNames))
      profiles.set(name, profile)
  }
  return profiles
}

function loadFolder(folder: string, toolNames: string[]): Map<string, Profile> {
  const found = new Map<string, Profile>()
  const attempt = (path: string, load: () => void) => {
    try {
      load()
    } catch (error) {
      complain(`Profile not used: ${path}: ${(error as Error).message}`)
    }
  }
  let files: string[] = []
  attempt(folder, () => {
    files = existsSync(folder) ? readdirSync(folder).sort() : []
  })
  for (const file of files.filter((name) => name.endsWith('.md'))) {
    const path = join(folder, file)
    attempt(path, () => {
      const profile = parseProfile(decode(readFileSync(path)), toolNames)
      if (found.has(profile.name))
        throw new Error(`another file is named ${profile.name} too`)
      found.set(profile.name, profile)
    })
  }
  return found
}

function decode(bytes: Buffer): string {
  try {
    const text = new TextDecoder('utf-8', { fatal: true }).decode(bytes)
    if (!text.includes('\0')) return text
  } catch {
    // Said below, as of UTF-16 without a byte order mark.
  }
  throw new Error('it is not UTF-8 text')
}

/**
 * Understands the part of YAML that such files use: plain, quoted, folded and literal
 * values, lists in either style, comments.
 *
 * @throws {Error} with the line and the reason
 */
export function parseProfile(source: string, toolNames: string[]): Profile {
  const lines = source.replace(/^\ufeff/, '').split(/\r?\n/)
  if (lines[0].trim() !== '---') throw new Error('line 1: it does not begin with ---')
  const end = lines.findIndex((line, i) => i > 0 && line.trimEnd() === '---')
  if (end < 0) throw new Error(`line ${lines.length}: there is no closing ---`)
  const fields = new Map<string, { value: string | string[] | undefined; line: number }>()
  for (let i = 1; i < end; i++) {
    const text = lines[i]
    if (/^\s*(#.*)?$/.test(text)) continue
    const [, key, rest] = /^([\w-]+):(?:\s+(.*))?$/.exec(text) ?? []
    const at = `line ${i + 1}`
    if (!key) throw new Error(`${at}: neither "key: value" nor part of a value: ${text}`)
    if (!KEYS.includes(key))
      throw new Error(`${at}: unknown key ${key}, not ${KEYS.join(', ')}`)
    if (fields.has(key)) throw new Error(`${at}: ${key} stands twice`)
    const start = i
    // In a folded or literal text neither a comment nor a list is one.
    const goesOn = /^[>|]/.test(rest ?? '') ? /^(\s|$)/ : /^(\s|-\s|-$|#|\]|$)/
    while (i + 1 < end && goesOn.test(lines[i + 1])) i++
    const more = lines.slice(start + 1, i + 1)
    fields.set(key, { value: parseValue(rest ?? '', more, at), line: start + 1 })
  }
  return checkFields(
    fields,
    lines
      .slice(end + 1)
      .join('\n')
      .trim(),
    toolNames,
  )
}

function parseValue(
  first: string,
  more: string[],
  at: string,
): string | string[] | undefined {
  const block = /^([>|])[-+\d]*(?:\s+#.*)?$/.exec(first.trim())
  if (block) return blockText(block[1], more)
  if (/^[>|]/.test(first))
    throw new Error(`${at}: text behind ${first[0]} belongs on the next lines`)
  const lines = [first, ...more].map((line) => line.trim()).filter(Boolean)
  while (lines[0]?.startsWith('#')) lines.shift()
  if (lines.length === 0) return undefined
  // Within quotes a # is text.
  if (/^["']/.test(lines[0])) return scalar(lines.join(' '), at)
  const parts = lines.map((line) => line.replace(/(^|\s+)#.*$/, '')).filter(Boolean)
  const isList = !/^[^#]/.test(first) && parts.every((part) => /^-(\s|$)/.test(part))
  if (isList) return parts.map((part) => scalar(part.slice(1), at))
  const whole = parts.join(' ')
  if (!whole.startsWith('[')) return whole
  const list = /^\[([^\]]*)\]$/.exec(whole)
  if (!list)
    throw new Error(`${at}: the list has no closing ], or something stands behind it`)
  return list[1]
    .split(',')
    .filter((item) => item.trim())
    .map((item) => scalar(item, at))
}

/** A folded text (`>`) is one line a paragraph, a literal one (`|`) stays as it is. */
function blockText(style: string, lines: string[]): string {
  const indents = lines.filter((line) => line.trim()).map((line) => line.search(/\S/))
  const text = lines.map((line) => line.slice(Math.min(...indents)).trimEnd()).join('\n')
  return style === '|' ? text : text.replace(/\n(\n*)/g, (_, rest) => rest || ' ')
}

/** A plain value up to a comment, or a quoted one with its escapes resolved. */
function scalar(given: string, at: string): string {
  const text = given.trim()
  if (!/^["']/.test(text)) return text.replace(/\s+#.*$/, '')
  const quoted = /^("(?:[^"\\]|\\.)*"|'(?:[^']|'')*')\s*(?:#.*)?$/.exec(text)
  if (!quoted)
    throw new Error(`${at}: a quote is not closed, or something stands behind it`)
  if (text.startsWith("'")) return quoted[1].slice(1, -1).replaceAll("''", "'")
  try {
    return JSON.parse(quoted[1])
  } catch {
    throw new Error(`${at}: an escape in the quoted value is not understood`)
  }
}

type Fields = Map<string, { value: string | string[] | undefined; line: number }>

function checkFields(fields: Fields, body: string, toolNames: string[]): Profile {
  const wrong = (key: string, reason: string) =>
    new Error(`line ${fields.get(key)?.line ?? 1}: ${key} ${reason}`)
  const text = (key: string) => {
    const { value } = fields.get(key) ?? {}
    if (!fields.has(key)) return undefined
    if (Array.isArray(value)) throw wrong(key, 'must be text, not a list')
    if (!value?.trim()) throw wrong(key, 'has no value')
    return value.trim()
  }
  const [name, description, effort, timeout] = KEYS.filter(
    (k) => !/tools|model/.test(k),
  ).map(text)
  if (!name) throw wrong('name', 'is missing')
  if (!/^[\w-]+$/.test(name))
    throw wrong('name', 'may hold only letters, digits, - and _')
  if (!description) throw wrong('description', 'is missing')
  if (effort && !EFFORTS.includes(effort))
    throw wrong('effort', `is none of ${EFFORTS.join(', ')}`)
  const ms = timeout === undefined ? undefined : Number(timeout)
  if (ms !== undefined && !(Number.isInteger(ms) && ms >= 1000 && ms < 2 ** 31)) {
    throw wrong('timeout', 'must be milliseconds: a whole number from 1000 to 2147483647')
  }
  const tools = toolsOf(fields, toolNames, wrong)
  return {
    name,
    description,
    ...(tools && { tools }),
    ...(text('model') && { model: text('model') }),
    ...(effort && { effort: effort as Effort }),
    ...(ms && { timeout: ms }),
    body,
  }
}

function toolsOf(
  fields: Fields,
  toolNames: string[],
  wrong: (key: string, reason: string) => Error,
): string[] | undefined {
  const { value } = fields.get('tools') ?? {}
  if (!fields.has('tools')) return undefined
  if (value === undefined || value === '') {
    throw wrong('tools', 'has no value: leave it out for all tools, write [] for none')
  }
  const names =
    typeof value === 'string' ? value.split(',').map((item) => item.trim()) : value
  const unknown = names.find((tool) => !toolNames.includes(tool))
  if (unknown === undefined) return names
  throw wrong(
    'tools',
    `names ${unknown || 'nothing'}, which is none of ${toolNames.join(', ')}`,
  )
}
