/**
 * What tests need around a step: a server on loopback that speaks the Messages API and
 * keeps its rules, and a folder of its own in which the step runs as a process.
 */
import { type ChildProcessWithoutNullStreams, spawn } from 'node:child_process'
import {
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  realpathSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs'
import {
  createServer,
  type IncomingHttpHeaders,
  type IncomingMessage,
  type ServerResponse,
} from 'node:http'
import { createRequire } from 'node:module'
import type { AddressInfo } from 'node:net'
import { tmpdir } from 'node:os'
import { dirname, join, resolve } from 'node:path'
import { text as readText } from 'node:stream/consumers'
import { requestError } from '../steps/support/base/protocol.ts'

// biome-ignore lint/suspicious/noExplicitAny: tests look into it field by field
export type Json = Record<string, any>

/** One POST to /v1/messages; `at` is its time of arrival in ms (`performance.now()`). */
export type Received = { headers: IncomingHttpHeaders; body: Json; at: number }

/** A request that was answered with an error because it, or the script, was wrong. */
export type Refused = { status: number; message: string; method: string; path: string }

/** Writes one answer; made by the helpers below. `n` counts accepted requests from 0. */
export type Answer = (response: ServerResponse, body: Json, n: number) => void

export type Handler = (body: Json, n: number) => Answer | Promise<Answer>

export type Server = {
  /** The base URL, without a slash at its end. */
  url: string
  requests: Received[]
  /** Expect it to be empty: `assert.deepEqual(server.refused, [])`. */
  refused: Refused[]
  close: () => Promise<void>
}

type Options = { auth?: 'any' | 'x-api-key' | 'bearer'; key?: string }

/**
 * Starts the server on a free port of 127.0.0.1. Only what the API itself would accept
 * reaches the script: POST /v1/messages exactly, with credentials, `anthropic-version`
 * and a body that breaks no rule. The rest gets the API's own error and stands in
 * `refused`, as does a request beyond the script's end (500, marked not to be retried).
 *
 * @param script the answers in order, or a function that chooses one per request
 * @param options which credential is needed (by default either) and its value, if any
 */
export async function startServer(
  script: Answer[] | Handler,
  options: Options = {},
): Promise<Server> {
  const requests: Received[] = []
  const refused: Refused[] = []
  let accepted = 0

  const server = createServer(async (request, response) => {
    const at = performance.now()
    const refuse = (status: number, type: string, message: string) => {
      const { method = '', url = '' } = request
      refused.push({ status, message, method, path: url })
      fail(status, type, message, { 'x-should-retry': 'false' })(response, {}, accepted)
    }
    try {
      const raw = await readText(request)
      if (request.url !== '/v1/messages')
        return refuse(404, 'not_found_error', 'Not Found')
      if (request.method !== 'POST') {
        return refuse(405, 'invalid_request_error', 'Method Not Allowed')
      }
      const body = parsed(raw)
      requests.push({ headers: request.headers, body, at })
      const denied = authError(request, options)
      if (denied) return refuse(401, 'authentication_error', denied)
      const wrong = headerError(request) ?? bodyError(body)
      if (wrong) return refuse(400, 'invalid_request_error', wrong)

      const n = accepted++
      const answer = Array.isArray(script) ? script[n] : await script(body, n)
      if (answer) answer(response, body, n)
      else refuse(500, 'api_error', `the script has no answer ${n + 1}`)
    } catch (error) {
      // A client that leaves in the middle of its request is no fault of the script.
      if (!request.complete) return response.destroy()
      refuse(500, 'api_error', `the script failed: ${error}`)
    }
  })
  await new Promise<void>((done) => server.listen(0, '127.0.0.1', done))

  const close = async () => {
    server.closeAllConnections()
    if (server.listening) await new Promise((done) => server.close(done))
  }
  const { port } = server.address() as AddressInfo
  return { url: `http://127.0.0.1:${port}`, requests, refused, close }
}

function authError({ headers }: IncomingMessage, { auth = 'any', key }: Options) {
  const bearer = headers.authorization?.match(/^Bearer (.+)$/)?.[1]
  const given = {
    'x-api-key': [headers['x-api-key']],
    bearer: [bearer],
    any: [headers['x-api-key'], bearer],
  }[auth].filter((credential) => credential !== undefined)
  if (given.length === 0) {
    return auth === 'bearer'
      ? 'Authorization header is required'
      : 'x-api-key header is required'
  }
  if (key === undefined || given.includes(key)) return undefined
  return auth === 'bearer' ? 'Invalid bearer token' : 'invalid x-api-key'
}

function headerError({ headers }: IncomingMessage) {
  const missing = headers['anthropic-version'] === undefined
  return missing ? 'anthropic-version: header is required' : undefined
}

function bodyError(body: Json) {
  if (typeof body === 'string') return 'The request body is not valid JSON'
  return body.stream ? 'stream: this server does not stream' : requestError(body)
}

/** The body, or the text itself where it is no JSON. */
function parsed(text: string) {
  try {
    return JSON.parse(text)
  } catch {
    return text
  }
}

/** Fields of a reply that a test sets itself: `stop_reason`, `usage`, `model`, … */
type Fields = Json

/** A well-formed reply with these content blocks. */
export function reply(content: Json[], fields: Fields = {}): Answer {
  return (response, body, n) => {
    const called = content.some((block) => block.type === 'tool_use')
    const message = {
      id: `msg_${n}`,
      type: 'message',
      role: 'assistant',
      model: body.model,
      content: content.map((block, k) =>
        block.type === 'tool_use' ? { id: `toolu_${n}_${k}`, ...block } : block,
      ),
      stop_reason: called ? 'tool_use' : 'end_turn',
      stop_sequence: null,
      usage: { input_tokens: 10, output_tokens: 5 },
      ...fields,
    }
    raw(200, message)(response, body, n)
  }
}

/** A reply that is one text. */
export function text(words: string, fields?: Fields): Answer {
  return reply([{ type: 'text', text: words }], fields)
}

/**
 * A reply that calls tools. An argument without a `name` holds fields of the reply
 * instead, and may hold `text`, which goes before the calls.
 */
export function calls(...items: Json[]): Answer {
  const { text: words, ...fields }: Json = Object.assign(
    {},
    ...items.filter((item) => !item.name),
  )
  const blocks = items
    .filter((item) => item.name)
    .map((call) => ({ type: 'tool_use', input: {}, ...call }))
  return reply(words ? [{ type: 'text', text: words }, ...blocks] : blocks, fields)
}

/** Any bytes; an object is sent as JSON. */
export function raw(
  status: number,
  body: string | Buffer | object,
  headers: Record<string, string> = {},
): Answer {
  const bytes = typeof body === 'string' || Buffer.isBuffer(body)
  return (response) => {
    response.writeHead(status, { 'content-type': 'application/json', ...headers })
    response.end(bytes ? body : JSON.stringify(body))
  }
}

/** An error as the API sends it. */
export function fail(
  status: number,
  type: string,
  message: string,
  headers?: Record<string, string>,
): Answer {
  return raw(status, { type: 'error', error: { type, message } }, headers)
}

/** No answer until the client leaves or the server is closed. */
export function stall(): Answer {
  return () => {}
}

/** Cuts the connection, before any answer or after these first bytes of one. */
export function hangUp(part?: string): Answer {
  return (response) => {
    const cut = () => {
      response.socket?.destroy()
    }
    if (part === undefined) return cut()
    const headers = { 'content-type': 'application/json', 'content-length': '100000' }
    response.writeHead(200, headers)
    response.write(part, cut)
  }
}

/** The same answer, later. */
export function wait(ms: number, answer: Answer): Answer {
  return (response, body, n) => {
    const timer = setTimeout(() => answer(response, body, n), ms)
    response.once('close', () => clearTimeout(timer))
  }
}

const REPOSITORY = resolve(import.meta.dirname, '..')
const roots = new Set<string>()
const children = new Set<ChildProcessWithoutNullStreams>()
process.on('exit', () => {
  for (const child of children) child.kill('SIGKILL')
  for (const root of roots) removeRoot(root)
})

function removeRoot(root: string) {
  roots.delete(root)
  rmSync(root, { recursive: true, force: true, maxRetries: 3 })
}

const clone = new Map<string, Buffer>()

/** What a root holds, read once: most of what a copy costs is finding and reading. */
function cloned(): Map<string, Buffer> {
  const pick = (path: string) => {
    const full = join(REPOSITORY, path)
    if (!statSync(full).isDirectory()) clone.set(path, readFileSync(full))
    else for (const name of readdirSync(full)) pick(join(path, name))
  }
  if (clone.size === 0)
    for (const part of ['steps', 'logs/recorded', 'package.json']) pick(part)
  return clone
}

/**
 * A fresh copy of what a reader has cloned: steps, recordings, package.json and a link
 * to node_modules. Removed after the test `t`, or when the test process ends.
 */
export function makeRoot(t?: { after: (done: () => void) => void }): string {
  const root = realpathSync(mkdtempSync(join(tmpdir(), 'steps-')))
  roots.add(root)
  t?.after(() => removeRoot(root))
  for (const [path, content] of cloned()) {
    mkdirSync(dirname(join(root, path)), { recursive: true })
    writeFileSync(join(root, path), content)
  }
  // A junction needs no special rights on Windows; elsewhere the word is ignored.
  symlinkSync(join(REPOSITORY, 'node_modules'), join(root, 'node_modules'), 'junction')
  return root
}

/**
 * Edits a step in `root` as a reader would: `from`, which must occur there exactly
 * `times`, becomes `to`.
 *
 * @throws {Error} when the step is no longer what the test takes it to be
 */
export function editStep(
  root: string,
  step: string,
  from: string,
  to: string,
  times = 1,
) {
  const path = join(root, 'steps', `${step}.ts`)
  const parts = readFileSync(path, 'utf8').split(from)
  if (parts.length - 1 !== times) {
    throw new Error(`${step} has ${parts.length - 1} times, not ${times}: ${from}`)
  }
  writeFileSync(path, parts.join(to))
}

// The very compiler that tsx uses, and brings along.
const tsx = createRequire(import.meta.url).resolve('tsx/package.json')
const { transformSync } = createRequire(tsx)('esbuild')
const compiled = new Map<string, string>() // by source
const written = new Map<string, string>() // by path

/**
 * Compiles the steps of a root (or only one, and what steps share), as they stand there
 * now, to `.mjs` files beside them. That
 * is what tsx does anew in each process; done once per source it halves what a run costs.
 */
export function compileSteps(root: string, only?: string): void {
  if (root === REPOSITORY) throw new Error('nothing is compiled into the repository')
  for (const folder of ['steps', 'steps/support'].map((part) => join(root, part))) {
    for (const name of readdirSync(folder).filter((file) => file.endsWith('.ts'))) {
      if (only && folder.endsWith('steps') && name !== `${only}.ts`) continue
      const source = readFileSync(join(folder, name), 'utf8')
      let code = compiled.get(source)
      if (code === undefined) {
        const options = { loader: 'ts', format: 'esm', target: 'es2023' }
        const plain: string = transformSync(source, options).code
        code = plain.replace(/(\bfrom "\.[^"]+)\.ts"/g, '$1.mjs"')
        compiled.set(source, code)
      }
      const path = join(folder, name.replace(/\.ts$/, '.mjs'))
      // Another step may be reading what is there: it is written only when it has changed.
      if (written.get(path) !== code) writeFileSync(path, code)
      written.set(path, code)
    }
  }
}

export type StepOptions = {
  /** The file's name under steps/, without `.ts`. */
  step: string
  args?: string[]
  /** Run by tsx itself, as a reader does; else what tsx would make of it is run. */
  tsx?: boolean
  /** Added to an environment that holds nothing but what a process needs. */
  env?: Record<string, string>
  /** Written to `.env` as it is. */
  dotenv?: string | Buffer
  /** What is piped in; by default nothing; null leaves the pipe open for the test. */
  stdin?: string | null
  /** A folder of `makeRoot`, to be shared by several runs. */
  root?: string
  /** The run is killed and the result rejected after this many ms. */
  timeout?: number
}

export type StepResult = {
  code: number | null
  signal: NodeJS.Signals | null
  stdout: string
  stderr: string
  root: string
}

/** Runs a step to its end, as a reader does. */
export function runStep(options: StepOptions): Promise<StepResult> {
  return startStep(options).result
}

/**
 * Starts a step: its process, the promise of its result, and `output(pattern)`, which
 * resolves once stdout matches and rejects if the step ends without.
 */
export function startStep(options: StepOptions) {
  const { step, args = [], env, dotenv, stdin = '', timeout = 30_000 } = options
  const root = options.root ?? makeRoot()
  if (dotenv !== undefined) writeFileSync(join(root, '.env'), dotenv)
  if (options.tsx === false) compileSteps(root, step)
  const file = (options.tsx ?? true)
    ? ['--import', 'tsx', `steps/${step}.ts`]
    : [`steps/${step}.mjs`]
  const child = spawn(process.execPath, [...file, ...args], {
    cwd: root,
    env: { ...leanEnvironment(root), ...env },
  })
  children.add(child)
  // A step may end without having read its input.
  child.stdin.on('error', () => {})
  if (stdin !== null) child.stdin.end(stdin)

  const result: StepResult = { code: null, signal: null, stdout: '', stderr: '', root }
  for (const name of ['stdout', 'stderr'] as const) {
    child[name].setEncoding('utf8').on('data', (piece) => {
      result[name] += piece
    })
  }
  const ended = new Promise<StepResult>((done, failed) => {
    const timer = setTimeout(() => {
      child.kill('SIGKILL')
      failed(new Error(`${step} did not end in ${timeout} ms:\n${show(result)}`))
    }, timeout)
    child.once('error', failed)
    child.once('exit', (code, signal) => {
      Object.assign(result, { code, signal })
      children.delete(child)
      clearTimeout(timer)
      // The pipes may outlive the step in a process that it has left behind.
      setTimeout(() => {
        child.stdout.destroy()
        child.stderr.destroy()
        done(result)
      }, 2000).unref()
    })
    child.once('close', () => done(result))
  })
  const output = (pattern: string | RegExp) =>
    new Promise<void>((done, failed) => {
      const look = () => {
        if (result.stdout.match(pattern)) done()
      }
      child.stdout.on('data', look)
      ended.then(
        () => failed(new Error(`${step} ended without ${pattern}:\n${show(result)}`)),
        failed,
      )
      look()
    })
  return { child, root, result: ended, output }
}

const show = ({ stdout, stderr }: StepResult) => `${stdout}\n${stderr}`

function leanEnvironment(root: string): NodeJS.ProcessEnv {
  const kept = ['PATH', 'PATHEXT', 'SystemRoot', 'ComSpec', 'TEMP', 'TMP']
  const pairs = kept.map((name) => [name, process.env[name]])
  return {
    ...Object.fromEntries(pairs.filter(([, value]) => value !== undefined)),
    HOME: root,
    ...(process.platform === 'win32' && { USERPROFILE: root }),
  }
}

/**
 * A lane's file, taken apart: what it ran with, its messages as the API takes them, its
 * events, and every line as it stands there.
 *
 * @param path relative to `root`, such as `logs/04-subagent/parent.log`
 * @throws {Error} for a file that is missing or has a broken or torn line
 */
export function readLane(root: string, path: string) {
  const file = readFileSync(join(root, path), 'utf8')
  if (!file.endsWith('\n')) throw new Error(`${path}: the last line is torn`)
  const lines: Json[] = file
    .slice(0, -1)
    .split('\n')
    .map((line) => JSON.parse(line))
  const messages: Json[] = lines
    .filter((line) => line.role)
    .map(({ role, content }) => ({ role, content }))
  return { header: lines[0], messages, events: lines.filter((line) => line.event), lines }
}
