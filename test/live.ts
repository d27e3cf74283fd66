/** What live tests share: a step asks the loopback server, its logs are read back. */
import assert from 'node:assert/strict'
import { readdirSync } from 'node:fs'
import { join } from 'node:path'
import {
  type Answer,
  type Context,
  fail,
  type Handler,
  type Json,
  makeRoot,
  readLane,
  runStep,
  type StepOptions,
  type StepResult,
  startServer,
} from './server.ts'

export * from './server.ts'

export const KEY = 'sk-test-0123456789abcdef'
export const MODEL = 'test-model'

type Script = Answer[] | Handler
type Auth = Parameters<typeof startServer>[1]

/** A server that is closed after the test. */
export async function serve(t: Context, script: Script, auth?: Auth) {
  const server = await startServer(script, auth)
  t.after(server.close)
  return server
}

/** A `.env` that makes a run live. */
export const envFile = (url: string, more = '') =>
  `ANTHROPIC_API_KEY=${KEY}\nANTHROPIC_BASE_URL=${url}\nMODEL_ID=${MODEL}\n${more}`

/**
 * Runs a step live to its end. Whatever happens in it, no request breaks a rule of the
 * API and no reader sees a stack trace.
 */
export async function runLive(
  t: Context,
  script: Script,
  { env, more, ...options }: Partial<StepOptions> & { more?: string } = {},
) {
  const server = await serve(t, script)
  const run = await runStep({
    step: '02-tool-use',
    root: options.root ?? makeRoot(t),
    dotenv: envFile(server.url, more),
    env,
    ...options,
  })
  assert.deepEqual(server.refused, [])
  assert.doesNotMatch(run.stderr, /\n\s+at /)
  return { ...run, server, requests: server.requests.map(({ body }) => body) }
}

/** The folder that a run says it has logged to. */
export function logFolder({ stdout }: Pick<StepResult, 'stdout'>): string {
  const folder = /; log: ([\w.\\/-]+)/.exec(stdout)?.[1]
  assert(folder, `no log in: ${stdout}`)
  return folder
}

/** A lane of a run. */
export const laneOf = (run: Pick<StepResult, 'stdout' | 'root'>, name = 'parent') =>
  readLane(run.root, join(logFolder(run), `${name}.log`))

/** Replays a live run offline: each lane holds the same messages and events again. */
export async function assertReplays(step: string, run: StepResult): Promise<void> {
  const folder = logFolder(run)
  const again = await runStep({ step, args: ['--replay', folder], root: run.root })
  assert.doesNotMatch(again.stderr, /\n\s+at /)
  assert.doesNotMatch(again.stdout, /not your edit/)
  for (const file of readdirSync(join(run.root, folder))) {
    const name = file.slice(0, -'.log'.length)
    const [live, offline] = [laneOf(run, name), laneOf(again, name)]
    assert.deepEqual(offline.messages, live.messages)
    const free = live.events.map(({ usage: _, ...event }) => event)
    assert.deepEqual(offline.events, free)
  }
}

// Calls of tools, for `calls`.
export const task = (prompt: unknown, more: Json = {}) => ({
  name: 'task',
  input: { prompt, ...more },
})
export const bash = (command: string, more: Json = {}) => ({
  name: 'bash',
  input: { command, ...more },
})
export const read = (path = 'README.md') => ({ name: 'read_file', input: { path } })
export const write = (path: string, content = '') => ({
  name: 'write_file',
  input: { path, content },
})

/** A script by prompt: each has its own answers, in order, whoever is asked. */
export function byPrompt(scripts: Record<string, Answer[]>): Handler {
  const left = new Map(Object.entries(scripts).map(([prompt, all]) => [prompt, [...all]]))
  return (body) => {
    const answer = left.get(promptOf(body))?.shift()
    const missing = `the script has no more answers to: ${promptOf(body)}`
    return answer ?? fail(500, 'api_error', missing, { 'x-should-retry': 'false' })
  }
}

/** The prompt that a request is about: the last message that holds no tool result. */
export function promptOf({ messages }: Json): string {
  return messages.findLast(
    ({ role, content }: Json) => role === 'user' && typeof content === 'string',
  ).content
}

/** The requests about a prompt. */
export const about = (requests: Json[], prompt: string) =>
  requests.filter((body) => promptOf(body) === prompt)

/** The tool results in the last message of a request. */
export const resultsIn = ({ messages }: Json): Json[] =>
  messages.at(-1).content.filter(({ type }: Json) => type === 'tool_result')
