/**
 * 07 · Stop: Ctrl+C and timeouts reach the child, and the histories stay in order.
 *
 *   Ctrl+C ──▶ the run's signal ──▶ relay ──▶ the child's controller ◀── timeoutMs
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
 * Changes    PARENT_TOOLS, DEFAULT_TIMEOUT_MS, LoopOptions, TaskInput, agentLoop,
 *            runTools, onToolCall, runSubagent, session.run
 * Run        npx tsx steps/07-stop.ts
 * Log        diff -r logs/recorded/06-tool-gate logs/07-stop
 */
import type { Message, MessageParam } from '@anthropic-ai/sdk/resources/messages'
import { type Effort, loadProfiles } from './support/agents/profiles.ts'
import { openSession } from './support/session.ts'
import { bash, SHELL } from './support/tools/bash.ts'
import { editFile, readFile, writeFile } from './support/tools/files.ts'
import { untilStopped } from './support/tools/stop.ts'
import {
  answerCalls,
  checkInput,
  namesOf,
  type Tool,
  type ToolInput,
  textOf,
  toolUses,
} from './support/tools/tool.ts'

const session = openSession(import.meta.filename)

const PROMPT =
  'Limit failed logins in this app to five: after that a user stays out, even with the' +
  ' right password. Find out first how the login works, then change it, extend' +
  ' test.mjs, and run it.'

const CHILD_TOOLS: Tool[] = [
  {
    name: 'bash',
    description: `Run a command with ${SHELL} in the working directory; cd is not kept.`,
    input_schema: {
      type: 'object',
      properties: { command: { type: 'string' } },
      required: ['command'],
    },
    run: bash,
  },
  {
    name: 'read_file',
    description: 'Read a text file, or its first lines up to limit.',
    input_schema: {
      type: 'object',
      properties: { path: { type: 'string' }, limit: { type: 'integer', minimum: 1 } },
      required: ['path'],
    },
    run: readFile,
  },
  {
    name: 'write_file',
    description: 'Write a text file; folders on its path are made.',
    input_schema: {
      type: 'object',
      properties: { path: { type: 'string' }, content: { type: 'string' } },
      required: ['path', 'content'],
    },
    run: writeFile,
  },
  {
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
    run: editFile,
  },
]

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
${AGENT_LIST.join('\n')}`

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

type LoopOptions = {
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

type LoopEnd = { stopReason: Message['stop_reason'] | 'max_turns'; text: string }

/** The one place where a history grows: what is pushed is a line of the lane's log. */
function push(messages: MessageParam[], message: MessageParam): void {
  messages.push(message)
  session.log(messages, message)
}

async function agentLoop(
  messages: MessageParam[],
  options: LoopOptions,
): Promise<LoopEnd> {
  const { prompt, system, tools, maxTurns, effort, signal } = options
  const lane = session.openLane(messages, options)
  push(messages, { role: 'user', content: prompt })
  let text = ''
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
    push(messages, { role: 'assistant', content: reply.content })
    text = textOf(reply) || text
    // The blocks decide whether there is work to do, not the stop_reason.
    if (toolUses(reply).length === 0) return { stopReason: reply.stop_reason, text }
    push(messages, { role: 'user', content: await runTools(reply, lane, options) })
  }
  return { stopReason: 'max_turns', text }
}

/** Each tool_use gets its tool_result; throwing is how one says `is_error`. */
function runTools(reply: Message, lane: string, { tools, workdir, signal }: LoopOptions) {
  return answerCalls(reply, async (call) => {
    signal.throwIfAborted()
    const tool = tools.find(({ name }) => name === call.name)
    if (!tool) throw new Error(`No tool ${call.name}, only ${namesOf(tools)}.`)
    const input = checkInput(tool, call.input)
    await onToolCall(tool.name, input, lane, signal)
    signal.throwIfAborted()
    const work = tool.run(input, { workdir, signal })
    // A leaf may ignore the signal; a child ends by it, and its outcome is needed.
    return tool.name === 'task' ? work : untilStopped(work, signal)
  })
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
  if (fits || (await session.ask(question, signal))) return
  const allowed = RULES.filter(([tool]) => tool === name).map(([, , regex]) => regex)
  throw new Error(
    `Refused, not run. Of ${name} only ${allowed.join(', ') || 'nothing'} may run.`,
  )
}

async function runSubagent(input: TaskInput): Promise<string> {
  const { prompt, agent, workdir, signal } = input
  const profile = AGENTS.get(agent ?? '')
  if (agent && !profile) {
    throw new Error(`No agent ${agent}, only ${[...AGENTS.keys()].join(', ') || 'none'}.`)
  }
  const child = new AbortController()
  const relay = () => child.abort(signal?.reason)
  signal?.addEventListener('abort', relay)
  if (signal?.aborted) relay()
  const ms = input.timeoutMs ?? profile?.timeout ?? DEFAULT_TIMEOUT_MS
  const timedOut = () => child.abort(new Error(`The subagent timed out after ${ms} ms.`))
  const timer = ms && setTimeout(timedOut, ms)
  const subMessages: MessageParam[] = []
  try {
    const { stopReason, text } = await agentLoop(subMessages, {
      prompt,
      system:
        SYSTEM + CHILD_SUFFIX + (profile ? `\n\n# Agent profile\n\n${profile.body}` : ''),
      // A profile narrows: whatever it names, there is no more than CHILD_TOOLS to have.
      tools: CHILD_TOOLS.filter(({ name }) => profile?.tools?.includes(name) ?? true),
      maxTurns: MAX_TURNS,
      workdir,
      model: profile?.model,
      effort: profile?.effort,
      signal: child.signal,
    })
    if (stopReason === 'end_turn') return text
    // An error, so that the parent does not take it for a summary.
    const why =
      stopReason === 'max_turns' ? `after ${MAX_TURNS} turns` : `by ${stopReason}`
    throw new Error(
      `The subagent was stopped ${why}, not done. Last words: ${text || 'none'}`,
    )
  } catch (error) {
    throw child.signal.aborted ? child.signal.reason : error
  } finally {
    clearTimeout(timer)
    signal?.removeEventListener('abort', relay)
  }
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
  }),
)
