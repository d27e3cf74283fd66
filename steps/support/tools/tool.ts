/** What a tool is, and the rules that hold around every call of one. */
import type Anthropic from '@anthropic-ai/sdk'
import { explain } from '../base/errors.ts'

/** A call's input. Its fields are what `checkInput` has found them to be. */
// biome-ignore lint/suspicious/noExplicitAny: the tool's own schema is the type
export type ToolInput = Record<string, any>

/** What every tool is told about the run it works for. */
export type ToolContext = { workdir: string; signal?: AbortSignal }

/** `run` returns what the model reads; throwing is how it says `is_error`. */
export type Tool = Omit<Anthropic.Tool, 'description'> & {
  description: string
  run: (input: ToolInput, context: ToolContext) => string | Promise<string>
}

type Schema = {
  type?: string
  properties?: Record<string, Schema>
  required?: string[]
  items?: Schema
  enum?: unknown[]
  minLength?: number
  minimum?: number
  maximum?: number
  maxItems?: number
}

/**
 * Checks a call's input against the tool's `input_schema` and returns it, mended where
 * only one reading is possible: an array or object that arrived as its JSON text is
 * parsed, an optional field that is `null` counts as absent.
 *
 * @throws {Error} naming the first field that is missing or wrong, and what it must be
 */
export function checkInput(tool: Tool, input: unknown): ToolInput {
  return check(input, tool.input_schema as Schema, tool.name) as ToolInput
}

function check(given: unknown, schema: Schema, at: string): unknown {
  const value = parsed(given, schema.type)
  const wrong = (must: string) => new Error(`${at} must be ${must}, not ${show(given)}`)
  if (schema.enum && !schema.enum.includes(value)) {
    throw wrong(`one of ${schema.enum.join(', ')}`)
  }
  if (schema.type === 'object') {
    if (typeOf(value) !== 'object') throw wrong('an object')
    return checkFields(value as ToolInput, schema, at)
  }
  if (schema.type === 'array') {
    if (!Array.isArray(value)) throw wrong('an array')
    if (value.length > (schema.maxItems ?? Number.POSITIVE_INFINITY)) {
      throw new Error(
        `${at} must have at most ${schema.maxItems} items, not ${value.length}`,
      )
    }
    return value.map((item, i) => check(item, schema.items ?? {}, `${at}[${i}]`))
  }
  if (schema.type === 'integer' && !Number.isSafeInteger(value)) throw wrong('an integer')
  if (schema.type && schema.type !== 'integer' && typeOf(value) !== schema.type) {
    throw wrong(aOrAn(schema.type))
  }
  if (schema.minLength && !(value as string).trim()) throw wrong('text, not blank')
  if (schema.minimum !== undefined && (value as number) < schema.minimum) {
    throw wrong(`at least ${schema.minimum}`)
  }
  if (schema.maximum !== undefined && (value as number) > schema.maximum) {
    throw wrong(`at most ${schema.maximum}`)
  }
  return value
}

function checkFields(value: ToolInput, schema: Schema, at: string): ToolInput {
  const result = { ...value }
  for (const [name, field] of Object.entries(schema.properties ?? {})) {
    if (value[name] !== undefined && value[name] !== null) {
      result[name] = check(value[name], field, `${at}.${name}`)
    } else if (schema.required?.includes(name)) {
      throw new Error(
        `${at}.${name} is missing: it is required, ${aOrAn(field.type ?? 'value')}`,
      )
    } else {
      delete result[name]
    }
  }
  return result
}

const aOrAn = (noun: string) => `${/^[aio]/.test(noun) ? 'an' : 'a'} ${noun}`

/** Some models send a list or an object as JSON text: it is parsed, never evaluated. */
function parsed(value: unknown, type?: string): unknown {
  if (typeof value !== 'string' || (type !== 'array' && type !== 'object')) return value
  try {
    return JSON.parse(value)
  } catch {
    return value
  }
}

const typeOf = (value: unknown) =>
  value === null ? 'null' : Array.isArray(value) ? 'array' : typeof value

const show = (value: unknown) => (JSON.stringify(value) ?? 'undefined').slice(0, 60)

/** What a `tool_result` says, beside whose call it answers. */
export type ToolAnswer = { content: string; is_error?: true }

/** Says which there are instead of one that is not. */
export function noSuch(kind: string, name: string, there: Iterable<{ name: string }>) {
  const names = Array.from(there, (one) => one.name)
  return `No ${kind} ${name}${names.length > 0 ? `, only ${names.join(', ')}` : ': there is none'}.`
}

/**
 * What `run` returns, as a result's content; with `is_error`, why it threw. Never rejects,
 * and never answers nothing, which the API would refuse.
 */
export async function attempt(run: () => string | Promise<string>): Promise<ToolAnswer> {
  try {
    const content = await run()
    return { content: content.trim() === '' ? '(no output)' : content }
  } catch (error) {
    const message = error instanceof Error ? error.message : String(error)
    const reason = (explain(error) ?? message).trim()
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
  // A character that the cut goes through is left out, not shown as half of one.
  const decode = (part: Buffer) => part.toString().replace(/^\ufffd+|\ufffd+$/g, '')
  const [head, tail] = [bytes.subarray(0, half), bytes.subarray(-half)].map(decode)
  const left = bytes.length - Buffer.byteLength(head + tail)
  return `${head}\n[${left} bytes left out]\n${tail}`
}
