/**
 * 07 · Stop: Ctrl+C and timeouts reach the child, and the histories stay in order.
 *
 *   Ctrl+C ──▶ the run's signal ──▶ AbortSignal.any ◀── the child's clock, timeoutMs
 *                    │                              │
 *              parentHistory                  subMessages
 *                assistant  task {timeoutMs} ──▶    user       the prompt
 *                                                   …          no answer
 *                user       tool_result is_error "… timed out …"     (a timeout: go on)
 *                           and the prompt comes back               (Ctrl+C: all ends)
 *
 * Every tool_use has its result before a run ends, so the API accepts what comes next.
 *
 * Builds on  06
 * Changes    PARENT_TOOLS, DEFAULT_TIMEOUT_MS, RunOptions, TaskInput, agentLoop, runTool,
 *            onToolCall, runSubagent, childSettings, repair, session.run
 * Run        npx tsx steps/07-stop.ts
 * Log        diff -r logs/recorded/06-tool-gate logs/07-stop
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
    run: ({ prompt, agent, timeoutMs }, { workdir, signal }) =>
      runSubagent({ prompt, agent, timeoutMs, workdir, signal }),
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
  for (let turn = 1; turn <= maxTurns; turn++) {
    signal.throwIfAborted()
    const request = {
      model: options.model ?? session.model,
      max_tokens: 8000,
      ...(effort && { output_config: { effort } }),
      system,
      tools,
      messages,
    }
    const reply = await session.client.messages.create(request, { signal })
    const { content, stop_reason: stopReason } = reply
    // The API refuses a history with an empty message in it.
    if (content.length > 0) push(messages, { role: 'assistant', content })
    // The blocks decide whether there is work to do, not the stop_reason.
    if (toolUses(reply).length === 0) return { stopReason, text: textOf(reply) }
    push(messages, { role: 'user', content: await runTools(reply, lane, options) })
  }
  return { stopReason: 'max_turns', text: '' } // our own word, beside the API's
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

async function runSubagent(input: TaskInput): Promise<string> {
  const { prompt, agent, workdir, signal } = input
  const settings = childSettings(findProfile(agent), workdir)
  const subMessages: MessageParam[] = []
  const clock = new AbortController()
  const ms = input.timeoutMs ?? settings.timeout ?? DEFAULT_TIMEOUT_MS
  const timedOut = () => clock.abort(new Error(`The subagent timed out after ${ms} ms.`))
  const timer = ms && setTimeout(timedOut, ms)
  const stop = AbortSignal.any([clock.signal, ...(signal ? [signal] : [])])
  const { stopReason, text } = await agentLoop(subMessages, {
    ...settings,
    prompt,
    signal: stop,
  })
    .catch((error) => {
      throw stop.reason ?? error
    })
    .finally(() => {
      clearTimeout(timer)
      repair(subMessages)
    })
  // A report is the text of the last reply, nothing said before. All else is an error, so
  // that the parent does not take it for one.
  const isReport = stopReason === 'end_turn' && text.trim() !== ''
  if (isReport) return text + noteOnCalls(text, CHILD_TOOLS)
  const empty = stopReason === 'end_turn' && 'its last reply was empty'
  const capped = stopReason === 'max_turns' && `stopped after ${MAX_TURNS} turns`
  throw new Error(
    `No report: ${empty || capped || `ended by ${stopReason}`}.` +
      ` Its last words: ${lastText(subMessages) || 'none'}`,
  )
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
