/**
 * 08 · Failure: five ways in which a child can end, and the parent is told which.
 *
 *   parentHistory                        subMessages
 *     assistant  task {prompt}     ──▶     user       the prompt
 *                                          assistant  "Found login(). Next, the tests."
 *                                          …          the API refuses the next request
 *     user       tool_result       ◀──   crashed, with the last words there were
 *                is_error: true
 *
 *   completed   a report                        is_error false, and only here
 *   capped      the turn limit, and one last call that asks what was found
 *   timed_out   timeoutMs                       the last words, called what they are
 *   aborted     Ctrl+C                          the same
 *   crashed     an error, a refusal, no text    the same, with the reason
 *
 * Builds on  07
 * Changes    PARENT_TOOLS, LAST_CALL, MAX_REPORT, Ending, Outcome, agentLoop,
 *            runSubagent, endingOf, taskResult, describe
 * Run        npx tsx steps/08-failure.ts
 * Log        diff -r logs/recorded/08-failure.same-cause logs/08-failure
 */
import type { Message, MessageParam, ToolUseBlock } from '@anthropic-ai/sdk/resources'
import { type Effort, loadProfiles, type Profile } from './support/agents/profiles.ts'
import { isCut, lastText, textOf, toolUses } from './support/base/messages.ts'
import { type Answer, openSession } from './support/session.ts'
import { ask } from './support/terminal/ask.ts'
import { bash } from './support/tools/bash.ts'
import { editFile, readFile, writeFile } from './support/tools/files.ts'
import { untilStopped } from './support/tools/stop.ts'
import {
  attempt,
  CUT_SHORT,
  checkInput,
  headAndTail,
  noSuch,
  type Tool,
  type ToolInput,
} from './support/tools/tool.ts'
import { noteOnCalls } from './support/tools/written.ts'

const session = openSession(import.meta.filename)

const PROMPT =
  'Limit failed logins in this app to five: after that a user stays out, even with the' +
  ' right password. Find out first how the login works, then change it, extend' +
  ' test.mjs, and run it.'

const CHILD_TOOLS = [bash, readFile, writeFile, editFile]

const AGENTS = loadProfiles(session, CHILD_TOOLS)

const PARENT_TOOLS: Tool[] = [
  ...CHILD_TOOLS,
  {
    name: 'task',
    description:
      'Give a piece of work to a subagent. It works in the same directory, but knows' +
      ' only what prompt says, and only its last text comes back.',
    input_schema: {
      type: 'object',
      properties: {
        prompt: { type: 'string', minLength: 1 },
        description: { type: 'string' },
        agent: { type: 'string' },
        timeoutMs: { type: 'integer', minimum: 1000, maximum: 2 ** 31 - 1 },
      },
      required: ['prompt'],
    },
    async run({ prompt, agent, timeoutMs }, { workdir, signal }) {
      const outcome = await runSubagent({ prompt, agent, timeoutMs, workdir, signal })
      if (outcome.status === 'completed') return taskResult(outcome)
      throw new Error(taskResult(outcome))
    },
  },
]

const AGENT_LIST = [...AGENTS.values()].map(
  ({ name, description }) => `- ${name}: ${description}`,
)

const SYSTEM = `You are a coding agent in ${session.workdir}.
Have investigations done by a subagent with task; change and test the code yourself.
Agents for task:
${AGENT_LIST.join('\n') || 'none'}`

const CHILD_SUFFIX = `

# Subagent mode
You were started by another agent for one task. You have no task tool and nobody to ask:
finish it yourself. Your last text goes back as it is, and nothing else does.`

const MAX_TURNS = 30

// Somebody at a terminal stops a child that takes too long; elsewhere nobody would.
const DEFAULT_TIMEOUT_MS = process.stdin.isTTY ? undefined : 60 * 60_000

/** What runs unasked: a tool, and what a field of its input must match. */
const RULES: [tool: string, field: string, allowed: RegExp][] = [
  ['read_file', 'path', /./],
  ['write_file', 'path', /^[\w/-]+\.(mjs|md)$/],
  ['edit_file', 'path', /^[\w/-]+\.(mjs|md)$/],
  ['bash', 'command', /^node \w[\w/-]*\.mjs$/],
  ['task', 'prompt', /./],
]

const LAST_CALL =
  'That was your last turn with tools. Say now what you found, and what is left to do.'

const MAX_REPORT = 50 * 1024

type RunOptions = {
  prompt: string
  system: string
  tools: Tool[]
  maxTurns: number
  workdir: string
  model?: string
  effort?: Effort
  signal: AbortSignal
}

type TaskInput = {
  prompt: string
  agent?: string
  timeoutMs?: number
  workdir: string
  signal?: AbortSignal
}

/** How a child can end; `text` is what its last reply said. */
type Ending =
  | { status: 'completed' | 'capped'; text: string }
  | { status: 'timed_out'; ms: number }
  | { status: 'aborted' }
  | { status: 'crashed'; reason: string }

type Outcome = Ending & {
  lastWords: string
  turns: number
  tokens: { input: number; output: number }
}

/** The one place where a history grows: what is pushed is a line of the array's log. */
function push(messages: MessageParam[], message: MessageParam): void {
  messages.push(message)
  session.log(messages, message)
}

async function agentLoop(messages: MessageParam[], options: RunOptions): Promise<Answer> {
  const { prompt, system, tools, maxTurns, effort, signal } = options
  // Each array has a log file, its lane: opened once, and found again by the array.
  const lane = session.openLane(messages, options)
  push(messages, { role: 'user', content: prompt })
  for (let turn = 1; ; turn++) {
    signal.throwIfAborted()
    const isLast = turn > maxTurns
    const request = {
      model: options.model ?? session.model,
      max_tokens: 8000,
      ...(effort && { output_config: { effort } }),
      ...(isLast && { tool_choice: { type: 'none' as const } }),
      system,
      tools,
      messages,
    }
    const reply = await session.client.messages.create(request, { signal })
    const { content, stop_reason: stopReason } = reply
    // The API refuses a history with an empty message in it.
    if (content.length > 0) push(messages, { role: 'assistant', content })
    if (isLast)
      return { stopReason: 'max_turns', text: isCut(reply) ? '' : textOf(reply) }
    // The blocks decide whether there is work to do, not the stop_reason.
    if (toolUses(reply).length === 0) return { stopReason, text: textOf(reply) }
    const results = await runTools(reply, lane, options)
    const note = turn === maxTurns ? [{ type: 'text' as const, text: LAST_CALL }] : []
    push(messages, { role: 'user', content: [...results, ...note] })
  }
}

/** Each tool_use is answered by a tool_result with its id, all in one user message. */
async function runTools(reply: Message, lane: string, options: RunOptions) {
  const results = []
  for (const call of toolUses(reply)) {
    const run = () => runTool(call, lane, options)
    const answer = isCut(reply) ? CUT_SHORT : await attempt(run)
    results.push({ type: 'tool_result' as const, tool_use_id: call.id, ...answer })
  }
  return results
}

/** Throwing is how a tool says is_error. */
async function runTool(call: ToolUseBlock, lane: string, options: RunOptions) {
  const { tools, workdir, signal } = options
  signal.throwIfAborted()
  const tool = tools.find(({ name }) => name === call.name)
  if (!tool) throw new Error(noSuch('tool', call.name, tools))
  const input = checkInput(tool, call.input)
  await onToolCall(tool.name, input, lane, signal)
  signal.throwIfAborted()
  const work = tool.run(input, { workdir, signal })
  // A tool may ignore the signal. Not task: its child ends by it, and how must be known.
  return tool.name === 'task' ? work : untilStopped(work, signal)
}

/** Comes before every call; throws the reason why it may not run. */
async function onToolCall(
  name: string,
  input: ToolInput,
  lane: string,
  signal: AbortSignal,
): Promise<void> {
  const fits = RULES.some(
    ([tool, field, allowed]) => tool === name && allowed.test(input[field]),
  )
  // All of the input: what a question leaves out could not be refused.
  const question = `${lane}: ${name} ${JSON.stringify(input)}`
  if (fits || (await ask(session, question, signal))) return
  const allowed = RULES.filter(([tool]) => tool === name).map(([, , regex]) => regex)
  const most = allowed.length > 0 ? `Of ${name} only ${allowed.join(', ')}` : `No ${name}`
  throw new Error(`Refused, not run. ${most} may run.`)
}

async function runSubagent(input: TaskInput): Promise<Outcome> {
  const { prompt, agent, workdir, signal } = input
  const settings = childSettings(findProfile(agent), workdir)
  const subMessages: MessageParam[] = []
  const clock = new AbortController()
  const ms = input.timeoutMs ?? settings.timeout ?? DEFAULT_TIMEOUT_MS
  const timer = ms && setTimeout(() => clock.abort(), ms)
  const stop = AbortSignal.any([clock.signal, ...(signal ? [signal] : [])])
  const ending = await agentLoop(subMessages, { ...settings, prompt, signal: stop })
    .then(endingOf)
    .catch((error): Ending => {
      if (signal?.aborted) return { status: 'aborted' }
      if (stop.aborted) return { status: 'timed_out', ms: Number(ms) }
      return { status: 'crashed', reason: session.explain(error) }
    })
    .finally(() => {
      clearTimeout(timer)
      repair(subMessages)
    })
  const { turns, ...tokens } = session.lanes.of(subMessages).usage
  const { text, ...how } = { text: '', ...ending }
  const level = ending.status === 'completed' ? 'info' : 'warn'
  session.lanes.of(subMessages).event(level, 'outcome', { ...how, turns })
  return {
    ...ending,
    lastWords: lastText(subMessages),
    turns,
    tokens,
  }
}

/** Only the text of a last reply is a report: an empty one, or a cut one, is none. */
function endingOf({ stopReason, text }: Answer): Ending {
  if (stopReason === 'max_turns') return { status: 'capped', text }
  if (stopReason === 'refusal') return { status: 'crashed', reason: 'the model refused' }
  if (stopReason !== 'end_turn')
    return { status: 'crashed', reason: `cut by ${stopReason}` }
  if (text.trim() === '') return { status: 'crashed', reason: 'its last reply was empty' }
  return { status: 'completed', text }
}

/** What the parent reads: how it ended, the text as what it is, what can be done next. */
function taskResult(outcome: Outcome): string {
  const { status, lastWords, turns, tokens } = outcome
  const [how, next] = describe(outcome)
  const count = status !== 'capped' && `${turns} ${turns === 1 ? 'turn' : 'turns'}`
  const cost = tokens.input > 0 && `${tokens.input} tokens in, ${tokens.output} out`
  const spent = [count, cost].filter(Boolean).join(', ')
  const said = 'text' in outcome && outcome.text.trim() !== ''
  const asked = status === 'completed' ? 'Its report' : 'Its closing answer, as asked'
  const label = said ? asked : 'Its last words, no report'
  const text = headAndTail(said ? outcome.text : lastWords, MAX_REPORT)
  const words = text ? `${label}:\n${text}` : 'No other words.'
  const note = said ? noteOnCalls(text, CHILD_TOOLS) : ''
  return [spent ? `${how} (${spent})` : how, words + note, next].join('\n\n')
}

function describe(outcome: Outcome): [how: string, next: string] {
  switch (outcome.status) {
    case 'completed':
      return ['completed', 'A report is a claim: check what you rely on.']
    case 'capped':
      return [`capped at turn ${MAX_TURNS}, unfinished`, 'What is left is a new task.']
    case 'timed_out':
      return [`timed_out after ${outcome.ms} ms, unfinished`, 'Ask less or allow more.']
    case 'aborted':
      return ['aborted by the user, unfinished', 'Start it again only if told to.']
    case 'crashed':
      return [`crashed: ${outcome.reason}`, 'Go on without it, or try again later.']
  }
}

function findProfile(agent?: string): Profile | undefined {
  const profile = AGENTS.get(agent ?? '')
  if (!agent || profile) return profile
  throw new Error(noSuch('agent', agent, AGENTS.values()))
}

/** What a child runs with: its parent's prompt and tools, changed by its profile. */
function childSettings(profile: Profile | undefined, workdir: string) {
  const { body, tools } = profile ?? {}
  return {
    system: SYSTEM + CHILD_SUFFIX + (body ? `\n\n# Agent profile\n\n${body}` : ''),
    // A profile narrows: whatever it names, there is no more than CHILD_TOOLS to have.
    tools: CHILD_TOOLS.filter(({ name }) => tools?.includes(name) ?? true),
    maxTurns: MAX_TURNS,
    workdir,
    agent: profile?.name,
    model: profile?.model,
    effort: profile?.effort,
    timeout: profile?.timeout,
  }
}

/** After a run, however it ended: each open call gets a result, or the API refuses it. */
function repair(messages: MessageParam[]): MessageParam | undefined {
  const { role, content } = messages.at(-1) ?? { role: 'user', content: '' }
  const blocks = role === 'assistant' && Array.isArray(content) ? content : []
  const open = blocks.filter((block) => block.type === 'tool_use')
  if (open.length === 0) return undefined
  const results = open.map(({ id }) => ({
    type: 'tool_result' as const,
    tool_use_id: id,
    content: 'Unknown: the run ended before this call was answered.',
    is_error: true,
  }))
  push(messages, { role: 'user', content: results })
  return messages.at(-1)
}

const parentHistory: MessageParam[] = []

await session.run(PROMPT, (prompt) =>
  agentLoop(parentHistory, {
    prompt,
    system: SYSTEM,
    tools: PARENT_TOOLS,
    maxTurns: Number.POSITIVE_INFINITY,
    workdir: session.workdir,
    signal: session.stopSignal(),
  }).finally(() => repair(parentHistory)),
)
