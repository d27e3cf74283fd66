/** Agent profiles: Markdown files that say what a subagent is and which tools it has. */
import { readdirSync, readFileSync, statSync } from 'node:fs'
import { homedir } from 'node:os'
import { join, relative } from 'node:path'
import { complain } from '../terminal/screen.ts'
import { noSuch, type Tool } from '../tools/tool.ts'

const EFFORTS = ['low', 'medium', 'high', 'xhigh', 'max'] as const
// Drops a byte order mark, and refuses what is not UTF-8.
const UTF8 = new TextDecoder('utf-8', { fatal: true })
const KEYS = ['name', 'description', 'tools', 'model', 'effort', 'timeout']

type Named = { name: string }
export type Effort = (typeof EFFORTS)[number]

export type Profile = {
  name: string
  description: string // what the parent's model chooses by
  tools?: string[] // left out means all that the parent has, but for task
  model?: string // left out means the parent's
  effort?: Effort
  timeout?: number // the most time a run may take, in milliseconds
  body: string // added to the child's system prompt
}

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
  const bundled = join(import.meta.dirname, '../../agents')
  const user = live ? [join(homedir(), '.agents')] : []
  const folders = [bundled, ...user, join(workdir, '.agents')]
  return new Map(folders.flatMap((folder) => [...loadFolder(folder, tools)]))
}

function loadFolder(folder: string, tools: Named[]): Map<string, Profile> {
  const found = new Map<string, Profile>()
  const isThere = statSync(folder, { throwIfNoEntry: false })?.isDirectory()
  const files = isThere ? readdirSync(folder).sort() : []
  for (const file of files.filter((name) => name.endsWith('.md'))) {
    const path = join(folder, file)
    try {
      const profile = parseProfile(UTF8.decode(readFileSync(path)), tools)
      const { name } = profile
      if (found.has(name)) throw new Error(`another file is named ${name} too`)
      found.set(name, profile)
    } catch (error) {
      const shown = relative('', path)
      complain(`Profile not used: ${shown}: ${(error as Error).message}`)
    }
  }
  return found
}

type Wrong = (reason: string) => Error
type Field = { value: string | string[]; wrong: Wrong }

const wrongAt = (line: number) => (reason: string) => new Error(`line ${line}: ${reason}`)

/**
 * Understands the part of YAML that such files need: plain and quoted values, folded
 * text, lists in brackets or of lines, comments. What it does not understand it refuses.
 *
 * @param tools the tools that the profile may name
 * @throws {Error} with the line and the reason
 */
export function parseProfile(source: string, tools: Named[]): Profile {
  const lines = source.split(/\r?\n/)
  if (lines[0].trimEnd() !== '---') throw wrongAt(1)('it does not begin with ---')
  const end = lines.findIndex((line, i) => i > 0 && line.trimEnd() === '---')
  if (end < 0) throw wrongAt(lines.length)('there is no closing ---')
  const fields = new Map<string, Field>()
  for (let i = 1; i < end; i++) {
    if (/^\s*(#|$)/.test(lines[i])) continue
    const wrong = wrongAt(i + 1)
    const [, key, first = ''] = /^([\w-]+):(?:\s+(.*))?$/.exec(lines[i].trimEnd()) ?? []
    if (!key) throw wrong(`neither "key: value" nor part of a value: ${lines[i]}`)
    if (!KEYS.includes(key)) throw wrong(`unknown key ${key}, not ${KEYS.join(', ')}`)
    if (fields.has(key)) throw wrong(`${key} stands twice`)
    const more: string[] = []
    while (i + 1 < end && /^(\s|-\s|-$|$)/.test(lines[i + 1])) more.push(lines[++i])
    fields.set(key, { value: parseValue(first, more, wrong), wrong })
  }
  const body = lines.slice(end + 1).join('\n')
  return checkFields(fields, body.trim(), tools)
}

/** What stands behind a key, and on the lines after it that are no key of their own. */
function parseValue(first: string, more: string[], wrong: Wrong): string | string[] {
  if (/^>[-+]?$/.test(first)) return more.join(' ').trim().replace(/\s+/g, ' ')
  const items = more.map((line) => line.trim()).filter((line) => /^[^#]/.test(line))
  if (items.length > 0) {
    const isList = scalar(first, wrong) === '' && items.every((item) => item[0] === '-')
    if (!isList) throw wrong('it goes on below: put > before long text, - before an item')
    return items.map((item) => scalar(item.slice(1).trim(), wrong))
  }
  const [, list] = /^\[([^\]]*)\]\s*(?:#.*)?$/.exec(first) ?? []
  if (list === undefined) return scalar(first, wrong)
  const parts = list.split(',').map((part) => part.trim())
  return parts.filter(Boolean).map((part) => scalar(part, wrong))
}

/** One value: plain, or in quotes with nothing but itself between them. */
function scalar(text: string, wrong: Wrong): string {
  const quoted = /^(["'])((?:(?!\1)[^\\])*)\1\s*(?:#.*)?$/.exec(text)
  if (quoted) return quoted[2]
  if (/^["'|>[{&*!%@`]/.test(text)) {
    throw wrong(`not understood: ${text}: close what opens, quote it, or use > alone`)
  }
  return text.replace(/(^|\s+)#.*$/, '')
}

function checkFields(fields: Map<string, Field>, body: string, tools: Named[]): Profile {
  const wrong = (key: string, reason: string) =>
    (fields.get(key)?.wrong ?? wrongAt(1))(`${key} ${reason}`)
  const text = (key: string) => {
    const value = fields.get(key)?.value
    if (Array.isArray(value)) throw wrong(key, 'must be text, not a list')
    if (value?.trim() === '') throw wrong(key, 'has no value')
    return value?.trim()
  }
  const missing = ['name', 'description'].find((key) => !fields.has(key))
  if (missing) throw wrong(missing, 'is missing')
  const model = text('model')
  const effort = EFFORTS.find((one) => one === text('effort'))
  if (fields.has('effort') && !effort)
    throw wrong('effort', `must be one of ${EFFORTS.join(', ')}`)
  const timeout = Number(text('timeout') ?? 0)
  const isTime = Number.isInteger(timeout) && timeout >= 1000 && timeout < 2 ** 31
  if (fields.has('timeout') && !isTime)
    throw wrong('timeout', 'must be milliseconds: a whole number from 1000 to 2147483647')
  return {
    name: text('name') ?? '',
    description: text('description') ?? '',
    tools: toolsOf(fields.get('tools'), tools),
    model: model?.toLowerCase() === 'inherit' ? undefined : model,
    effort,
    timeout: timeout || undefined,
    body,
  }
}

/** The tools that a list leaves a child; undefined where there is no list. */
function toolsOf(field: Field | undefined, tools: Named[]) {
  if (!field) return undefined
  const { value, wrong } = field
  const items = Array.isArray(value) ? value : value.split(',')
  const names = items.map((item) => item.trim())
  if (names.includes(''))
    throw wrong('tools has a blank value: leave it out for all, [] is for none')
  const unknown = names.find((name) => !tools.some((tool) => tool.name === name))
  if (unknown) throw wrong(noSuch('tool', unknown, tools))
  return names
}
