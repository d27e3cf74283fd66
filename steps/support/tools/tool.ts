/** What a tool is, and the rules that hold around every call of one. */
import type Anthropic from '@anthropic-ai/sdk'
import { explain } from '../base/errors.ts'
import { parseJson } from '../base/lane-file.ts'
import type { Json } from '../base/protocol.ts'
import { fit } from '../base/width.ts'

/** A call's input. Its fields are what `checkInput` has found them to be. */
export type ToolInput = Json

/** What every tool is told about the run it works for. */
export type ToolContext = { workdir: string; signal?: AbortSignal }

/** `run` returns what the model reads; throwing is how it says `is_error`. */
export type Tool = Omit<Anthropic.Tool, 'description'> & {
  description: string
  run: (input: ToolInput, context: ToolContext) => string | Promise<string>
}

/** What a `tool_result` says, beside whose call it answers. */
export type ToolAnswer = { content: string; is_error?: true }

/**
 * Checks a call's input against the tool's `input_schema` and returns it. Some models
 * send a list, a number or a boolean as its text: that is read. An optional field that
 * is `null` counts as absent.
 *
 * @throws {Error} naming the first field that is missing or wrong, and what it must be
 */
export function checkInput(tool: Tool, input: unknown): ToolInput {
  return check(input, tool.input_schema, tool.name)
}

function check(given: unknown, schema: Json, at: string) {
  const value = read(given, schema.type)
  const demand = demandOn(value, schema)
  if (demand) throw new Error(`${at} must be ${demand}, not ${show(given)}`)
  if (schema.type === 'object') return checkFields(value, schema, at)
  if (schema.type === 'array') return checkItems(value, schema, at)
  return value
}

/** Text where something else is wanted is read as JSON, never evaluated. */
function read(value: unknown, type = 'string'): Json[string] {
  if (typeof value !== 'string' || type === 'string') return value
  return parseJson(type === 'boolean' ? value.toLowerCase() : value) ?? value
}

/** What the schema demands of the value and does not find. */
function demandOn(value: Json[string], schema: Json): string | undefined {
  const { type, enum: values, minLength, minimum, maximum } = schema
  if (values && !values.includes(value)) return `one of ${values.join(', ')}`
  const is = type === 'integer' && Number.isSafeInteger(value) ? type : typeOf(value)
  if (type && is !== type) return aOrAn(type)
  if (minLength && !value.trim()) return 'text, not blank'
  if (minimum !== undefined && value < minimum) return `at least ${minimum}`
  if (maximum !== undefined && value > maximum) return `at most ${maximum}`
  return undefined
}

function checkFields(value: Json, schema: Json, at: string): Json {
  const result = { ...value }
  for (const [name, field] of Object.entries<Json>(schema.properties ?? {})) {
    if (value[name] !== undefined && value[name] !== null) {
      result[name] = check(value[name], field, `${at}.${name}`)
    } else if (schema.required?.includes(name)) {
      const kind = aOrAn(field.type ?? 'value')
      throw new Error(`${at}.${name} is missing: it is required, ${kind}`)
    } else {
      delete result[name]
    }
  }
  return result
}

function checkItems(value: unknown[], schema: Json, at: string): unknown[] {
  const { items = {}, maxItems = value.length } = schema
  if (value.length > maxItems) {
    throw new Error(`${at} must have at most ${maxItems} items, not ${value.length}`)
  }
  return value.map((item, i) => check(item, items, `${at}[${i}]`))
}

const typeOf = (value: unknown) =>
  value === null ? 'null' : Array.isArray(value) ? 'array' : typeof value
const aOrAn = (noun: string) => `${/^[aio]/.test(noun) ? 'an' : 'a'} ${noun}`
const show = (value: unknown) => fit(JSON.stringify(value) ?? 'undefined', 60)

/** Says which there are instead of one that is not. */
export function noSuch(kind: string, name: string, there: Iterable<{ name: string }>) {
  const names = Array.from(there, (one) => one.name).join(', ')
  return `No ${kind} ${name}${names ? `, only ${names}` : ': there is none'}.`
}

/**
 * What `run` returns, as a result's content; with `is_error`, why it threw. Never
 * rejects, and never holds what the API refuses: nothing at all, or half a character.
 */
export async function attempt(run: () => string | Promise<string>): Promise<ToolAnswer> {
  try {
    const content = await run()
    return { content: content.trim() ? content.toWellFormed() : '(no output)' }
  } catch (error) {
    const message = error instanceof Error ? error.message : String(error)
    const reason = (explain(error) ?? message).trim().toWellFormed()
    return { content: reason || 'The tool failed.', is_error: true }
  }
}

/** The answer to each call of a reply that was cut short. */
export const CUT_SHORT: ToolAnswer = {
  content:
    'Not run: your reply was cut short, so this call may be incomplete. No call of that' +
    ' reply was run. Send it again in smaller parts.',
  is_error: true,
}

/** A text of at most `most` bytes: its head and tail around a marker, if it is longer. */
export function headAndTail(text: string, most: number): string {
  const bytes = Buffer.from(text)
  if (bytes.length <= most) return text
  const half = Math.floor(most / 2)
  return aroundMarker([bytes.subarray(0, half), bytes.subarray(-half)], bytes.length)
}

const utf8 = (bytes: Buffer) => bytes.toString()

/** The two ends of `total` bytes, without the characters that a cut may go through. */
export function aroundMarker([head, tail]: Buffer[], total: number, decode = utf8) {
  const isFirst = (byte: number) => (byte & 0xc0) !== 0x80
  const start = head.subarray(0, head.findLastIndex(isFirst))
  const end = tail.subarray(Math.max(0, tail.findIndex(isFirst)))
  const left = total - start.length - end.length
  return `${decode(start)}\n[${count(left, 'byte')} left out]\n${decode(end)}`
}

export const count = (n: number, what: string) => `${n} ${what}${n === 1 ? '' : 's'}`

/** The schema of an input that is nothing but texts. */
export const texts = (...names: string[]) => ({
  type: 'object' as const,
  properties: Object.fromEntries(names.map((name) => [name, { type: 'string' }])),
  required: names,
})
