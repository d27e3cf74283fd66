/**
 * 10 · Parallel: several children at once, each in its own worktree if asked.
 *
 *   parentHistory                          sub-1            sub-2
 *     assistant  task 1, task 2     ──▶      user  prompt 1   user  prompt 2
 *                                            …  at the same time  …
 *     user       result 1, result 2 ◀──      its report       its report
 *
 * `worktree: true`: a worktree and branch of its own, removed if the child left no trace.
 *
 * Builds on  09
 * Changes    PARENT_TOOLS, SYSTEM, RULES, AT_ONCE, RUNNING, TaskInput, ChildSettings,
 *            Outcome, runTools, runSubagent, placeOf, runChild, taskResult,
 *            childSettings, tellOfWorktrees
 * Run        npx tsx steps/10-parallel.ts
 * Log        diff -r logs/recorded/09-resume logs/10-parallel
 */
import { isDeepStrictEqual } from 'node:util'
import type {
  Message,
  MessageParam,
  ToolUseBlock,
} from '@anthropic-ai/sdk/resources/messages'
import { type Effort, loadProfiles, type Profile } from './support/agents/profiles.ts'
import {
  closeWorktree,
  findWorktree,
  openWorktree,
  tellOfWorktrees,
} from './support/agents/worktree.ts'
import type { LaneSettings } from './support/run/lanes.ts'
import { openSession } from './support/session.ts'
import { bash, SHELL } from './support/tools/bash.ts'
import { editFile, readFile, writeFile } from './support/tools/files.ts'
import { atMost } from './support/tools/parallel.ts'
import { untilStopped } from './support/tools/stop.ts'
import {
  answerCall,
  checkInput,
  headAndTail,
  namesOf,
  type Tool,
  type ToolInput,
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
      'Give a piece of work to a subagent. It works beside you or in a worktree, but' +
      ' knows only what prompt says; only its last text comes back.',
    input_schema: {
      type: 'object',
      properties: {
        prompt: { type: 'string', minLength: 1 },
        description: { type: 'string' },
        agent: { type: 'string' },
        timeoutMs: { type: 'integer', minimum: 1000, maximum: 2 ** 31 - 1 },
        resume: { type: 'string' },
        worktree: { type: 'boolean' },
      },
      required: ['prompt'],
    },
    async run(input, { workdir, signal }) {
      const { prompt, agent, timeoutMs, resume, worktree } = input
      const task = { prompt, agent, timeoutMs, resume, worktree, workdir, signal }
      const outcome = await runSubagent(task)
      if (outcome.status === 'completed') return taskResult(outcome)
      throw new Error(taskResult(outcome))
    },
  },
]

const AGENT_LIST = [...AGENTS.values()].map(
  ({ name, description }) => `- ${name}: ${description}`,
)

const SYSTEM = `You are a coding agent in ${session.workdir}.
Have investigations done by subagents with task, several at once if they do not depend on
each other. Whoever changes files beside others gets a worktree; you merge and test.
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
  ['bash', 'command', /^git (-C ("[^"$`]+"|[\w./-]+) )?(add -A|commit -q -m "[\w ]+")$/],
  ['bash', 'command', /^git (merge -q|diff|checkout -q --) [\w./-]+$/],
  ['task', 'prompt', /./],
]

const AT_ONCE = atMost(4)

// The lanes at work: each has one writer.
const RUNNING = new Set<string>()

const LAST_CALL =
  'That was your last turn with tools. Say now what you found, and what is left to do.'

const MAX_REPORT = 50 * 1024

const FILES_CHANGED = '(Files may have changed: read again what you rely on.)'

/** What line 1 of a lane must still say if the lane is to go on. */
const FIXED = ['agent', 'model', 'system', 'tools', 'workdir'] as const

type LoopOptions = {
  prompt: string
  system: string
  tools: Tool[]
  maxTurns: number
  workdir: string
  model?: string
  effort?: Effort
  agent?: string
  signal: AbortSignal
}

type TaskInput = {
  prompt: string
  agent?: string
  timeoutMs?: number
  resume?: string
  worktree?: boolean
  workdir: string
  signal?: AbortSignal
}

type ChildSettings = ReturnType<typeof childSettings> & {
  lane: string
  worktree?: string
}

type LoopEnd = { stopReason: Message['stop_reason'] | 'max_turns' }

/** How a child can end. */
type Ending =
  | { status: 'completed' | 'capped' | 'aborted' }
  | { status: 'timed_out'; ms: number }
  | { status: 'crashed'; reason: string }

/** `text` is the child's report if it completed, else its last words. */
type Outcome = Ending & {
  lane: string
  worktree?: { kept: boolean; told: string }
  text: string
  turns: number
  tokens: { input: number; output: number }
}

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
    push(messages, { role: 'assistant', content: reply.content })
    if (isLast) repair(messages)
    if (isLast) return { stopReason: 'max_turns' }
    // The blocks decide whether there is work to do, not the stop_reason.
    if (toolUses(reply).length === 0) return { stopReason: reply.stop_reason }
    const results = await runTools(reply, lane, options)
    const note = turn === maxTurns ? [{ type: 'text' as const, text: LAST_CALL }] : []
    push(messages, { role: 'user', content: [...results, ...note] })
  }
}

/** Tasks run beside each other, other tools in turn; results in the calls' order. */
function runTools(reply: Message, lane: string, { tools, workdir, signal }: LoopOptions) {
  const run = async (call: ToolUseBlock) => {
    signal.throwIfAborted()
    const tool = tools.find(({ name }) => name === call.name)
    if (!tool) throw new Error(`No tool ${call.name}, only ${namesOf(tools)}.`)
    const input = checkInput(tool, call.input)
    await onToolCall(tool.name, input, lane, signal)
    signal.throwIfAborted()
    const work = tool.run(input, { workdir, signal })
    // A leaf may ignore the signal; a child ends by it, and its outcome is needed.
    return tool.name === 'task' ? work : untilStopped(work, signal)
  }
  let before: Promise<unknown> = Promise.resolve()
  const results = toolUses(reply).map((call) => {
    const answer = () => answerCall(reply, call, run)
    if (call.name === 'task') return AT_ONCE(answer)
    const result = before.then(answer)
    before = result
    return result
  })
  return Promise.all(results) // answerCall never rejects: no failure takes another along
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

async function runSubagent(input: TaskInput): Promise<Outcome> {
  const { resume, agent, worktree, workdir } = input
  if (resume && agent)
    throw new Error('A resumed child keeps its agent: leave agent out.')
  if (resume && worktree) throw new Error('A resumed child keeps its place: no worktree.')
  // Before anything is made: an unknown agent starts nothing.
  const profile = findProfile(resume ? session.readLane(resume).header.agent : agent)
  const lane = resume || session.nextLane()
  if (RUNNING.has(lane)) throw new Error(`${lane} is still at work: wait for its result.`)
  RUNNING.add(lane)
  try {
    const tree = await placeOf(lane, input)
    const settings = childSettings(profile, tree?.path ?? workdir)
    const outcome = await runChild({ ...settings, lane, worktree: tree?.branch }, input)
    return tree ? { ...outcome, worktree: await closeWorktree(workdir, tree) } : outcome
  } finally {
    RUNNING.delete(lane)
  }
}

/** The child's own worktree, new or the one it had; undefined if it has none. */
function placeOf(lane: string, { resume, worktree, workdir }: TaskInput) {
  if (!resume) return worktree ? openWorktree(workdir, lane) : undefined
  const branch = session.readLane(resume).header.worktree
  return branch ? findWorktree(workdir, branch, lane) : undefined
}

async function runChild(settings: ChildSettings, input: TaskInput): Promise<Outcome> {
  const { prompt, resume, signal } = input
  const subMessages: MessageParam[] = []
  if (resume) readBack(subMessages, resume, settings)
  session.openLane(subMessages, settings)
  const start = subMessages.length
  const child = new AbortController()
  const relay = () => child.abort(signal?.reason)
  signal?.addEventListener('abort', relay)
  if (signal?.aborted) relay()
  const ms = input.timeoutMs ?? settings.timeout ?? DEFAULT_TIMEOUT_MS
  const timer = ms && setTimeout(() => child.abort(new Error('timed out')), ms)
  const end = (ending: Ending): Outcome => {
    const own = subMessages.slice(start)
    const turns = own.filter(({ role }) => role === 'assistant').length
    session.event(subMessages, 'outcome', { ...ending, turns })
    return {
      ...ending,
      lane: settings.lane,
      text: lastText(own),
      turns,
      tokens: session.usage(subMessages),
    }
  }
  try {
    const { stopReason } = await agentLoop(subMessages, {
      ...settings,
      prompt: resume ? `${prompt}\n\n${FILES_CHANGED}` : prompt,
      signal: child.signal,
    })
    if (stopReason === 'end_turn') return end({ status: 'completed' })
    if (stopReason === 'max_turns') return end({ status: 'capped' })
    return end({ status: 'crashed', reason: `its report was cut by ${stopReason}` })
  } catch (error) {
    repair(subMessages)
    if (signal?.aborted) return end({ status: 'aborted' })
    if (child.signal.aborted) return end({ status: 'timed_out', ms: Number(ms) })
    return end({ status: 'crashed', reason: session.explain(error) })
  } finally {
    clearTimeout(timer)
    signal?.removeEventListener('abort', relay)
  }
}

function findProfile(agent?: string): Profile | undefined {
  const profile = AGENTS.get(agent ?? '')
  if (!agent || profile) return profile
  throw new Error(`No agent ${agent}, only ${[...AGENTS.keys()].join(', ') || 'none'}.`)
}

/** What a child runs with: its parent's prompt and tools, changed by its profile. */
function childSettings(profile: Profile | undefined, workdir: string) {
  const { body, tools, model, effort, timeout } = profile ?? {}
  return {
    system:
      SYSTEM.replace(session.workdir, () => workdir) +
      CHILD_SUFFIX +
      (body ? `\n\n# Agent profile\n\n${body}` : ''),
    // A profile narrows: whatever it names, there is no more than CHILD_TOOLS to have.
    tools: CHILD_TOOLS.filter(({ name }) => tools?.includes(name) ?? true),
    maxTurns: MAX_TURNS,
    workdir,
    model,
    effort,
    timeout,
    agent: profile?.name,
  }
}

/** Fills an empty array from its lane's file, if it would run as it did. */
function readBack(messages: MessageParam[], lane: string, settings: LaneSettings): void {
  const file = session.readLane(lane, settings.workdir)
  const now = session.header(lane, settings)
  const differs = FIXED.filter((key) => !isDeepStrictEqual(file.header[key], now[key]))
  if (differs.length > 0) {
    throw new Error(`${lane} ran with another ${differs.join(', ')}: it cannot go on.`)
  }
  session.reopenLane(messages, file)
  repair(messages)
}

/** What the parent reads: how it ended, the text as what it is, what can be done next. */
function taskResult(outcome: Outcome): string {
  const { lane, status, text, turns, tokens, worktree } = outcome
  const [how, next] = describe(outcome)
  const cost = tokens.input > 0 ? `, ${tokens.input} tokens in, ${tokens.output} out` : ''
  const label = status === 'completed' ? 'Its report' : 'Its last words, no report'
  const words = text ? `${label}:\n${headAndTail(text, MAX_REPORT)}` : 'No other words.'
  const spent = `${turns} ${turns === 1 ? 'turn' : 'turns'}${cost}`
  const isGone = worktree && !worktree.kept
  const more = isGone ? '' : ` To go on with this child: resume "${lane}".`
  return [`${how} (${spent})`, words, worktree?.told, next + more]
    .filter(Boolean)
    .join('\n\n')
}

function describe(outcome: Outcome): [how: string, next: string] {
  switch (outcome.status) {
    case 'completed':
      return ['completed', 'A report is a claim: check what you rely on.']
    case 'capped':
      return [
        `capped at ${MAX_TURNS} turns, unfinished`,
        'What is left is a task of its own.',
      ]
    case 'timed_out':
      return [
        `timed_out after ${outcome.ms} ms, unfinished`,
        'Ask for less, or allow more.',
      ]
    case 'aborted':
      return [
        'aborted by the user, unfinished',
        'Start it again only if you are told to.',
      ]
    case 'crashed':
      return [`crashed: ${outcome.reason}`, 'Go on without it, or try again later.']
  }
}

/** The last words of an assistant, joined from all text blocks of one reply. */
function lastText(messages: MessageParam[]): string {
  const texts = messages.map(({ role, content }) => {
    if (role !== 'assistant' || typeof content === 'string') return ''
    return content.map((block) => (block.type === 'text' ? block.text : '')).join('')
  })
  return texts.findLast((text) => text.trim() !== '') ?? ''
}

/** After a failed run: answers every open call, so that the API takes the history. */
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

const PARENT = {
  system: SYSTEM,
  tools: PARENT_TOOLS,
  maxTurns: Number.POSITIVE_INFINITY,
  workdir: session.workdir,
}

session.orExit(() => {
  if (session.continued) readBack(parentHistory, 'parent', PARENT)
})

await tellOfWorktrees(session)

await session.run(PROMPT, async (prompt) => {
  try {
    const signal = session.stopSignal()
    const { stopReason } = await agentLoop(parentHistory, { ...PARENT, prompt, signal })
    return { stopReason, text: lastText(parentHistory) }
  } catch (error) {
    repair(parentHistory)
    throw error
  }
})
