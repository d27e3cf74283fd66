/**
 * 12 · Compaction: a history that grows too large is summed up before the next turn.
 *
 *   subMessages, before             summaryMessages           subMessages, after
 *     user       the prompt           a copy of the old         user       the prompt
 *     assistant  tool_use    ┐        user       sum it up  ┌─▶ user       the summary
 *     user       tool_result ┘ ──▶    assistant  the text  ─┘   the newest turns, as they
 *     the newest turns ───────────────────────────────────────▶ were
 *
 * Step 04 once more, turned on oneself: another array, and only its text comes back. What
 * was asked stays word for word. What is gone from the requests is still in the log.
 *
 * Builds on  11
 * Changes    LIMIT, KEEP_TURNS, SUM_UP, RunOptions, agentLoop, compact
 * Run        npx tsx steps/12-compaction.ts
 * Log        diff -r logs/recorded/12-compaction.lost logs/12-compaction
 */
import { isDeepStrictEqual } from 'node:util'
import type {
  Message,
  MessageParam,
  ToolResultBlockParam,
  ToolUseBlock,
} from '@anthropic-ai/sdk/resources'
import { type Effort, loadProfiles, type Profile } from './support/agents/profiles.ts'
import {
  closeWorktree,
  findWorktree,
  listWorktrees,
  openWorktree,
  startRepository,
} from './support/agents/worktree.ts'
import { isCut, lastText, textOf, toolUses } from './support/base/messages.ts'
import { isTooLong } from './support/base/too-long.ts'
import type { LaneSettings } from './support/run/lanes.ts'
import { recoverLane, reopenLane } from './support/run/resume.ts'
import { sizeOfHistory } from './support/run/size.ts'
import { type Answer, openSession } from './support/session.ts'
import { ask } from './support/terminal/ask.ts'
import { bash } from './support/tools/bash.ts'
import { editFile, readFile, writeFile } from './support/tools/files.ts'
import { atMost } from './support/tools/parallel.ts'
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
      'Give a piece of work to a subagent. It knows only what prompt says, and only its' +
      ' last text comes back. It works beside you or, with worktree, in a git worktree' +
      ' of its own, made from the last commit: uncommitted changes are not in it.',
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
  ['bash', 'command', /^git (-C ("[^"$`]+"|[\w./-]+) )?(add -A|commit -q -m "[\w ]+")$/],
  ['bash', 'command', /^git (merge -q|diff|checkout -q --) [\w./-]+$/],
  ['task', 'prompt', /./],
]

const AT_ONCE = atMost(4)

// The lanes at work: each has one writer.
const RUNNING = new Set<string>()

/** The largest history: in tokens, as the API counts them, or offline in bytes. */
const LIMIT = { tokens: 100_000, bytes: 6_500 }[session.unit]

const KEEP_TURNS = 2

const SUM_UP =
  'Sum up this conversation for yourself: besides what you were asked and the newest' +
  ' turns, you will know only this summary. Keep what is still needed: files read or' +
  ' changed and what matters in them, decisions and reasons, failures, what is open.'

const LAST_CALL =
  'That was your last turn with tools. Say now what you found, and what is left to do.'

const MAX_REPORT = 50 * 1024

const FILES_CHANGED = '(Files may have changed: read again what you rely on.)'

/** What line 1 of a lane must still say if the lane is to go on. */
const FIXED = ['agent', 'model', 'system', 'tools', 'workdir'] as const

type RunOptions = {
  prompt: string
  system: string
  tools: Tool[]
  maxTurns: number
  workdir: string
  model?: string
  effort?: Effort
  signal: AbortSignal
  isSummary?: boolean
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

/** How a child can end; `text` is what its last reply said. */
type Ending =
  | { status: 'completed' | 'capped'; text: string }
  | { status: 'timed_out'; ms: number }
  | { status: 'aborted' }
  | { status: 'crashed'; reason: string }

type Outcome = Ending & {
  lane: string
  worktree?: { kept: boolean; told: string }
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
  let limit = LIMIT // raised while a summary does not help: no try at every turn
  for (let turn = 1; ; turn++) {
    signal.throwIfAborted()
    const size = sizeOfHistory(session, messages)
    if (size <= LIMIT) limit = LIMIT
    if (size > limit && (await compact(messages, lane, options)) !== undefined)
      limit = 2 * size
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
    const send = () => session.client.messages.create(request, { signal })
    const reply = await send().catch(async (error) => {
      // Too long for the model, whatever LIMIT says: one compaction, and one more try.
      if (isTooLong(error) && (await compact(messages, lane, options))) return send()
      throw error
    })
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

/** Replaces all but what was asked and the newest turns; false if no summary helps. */
async function compact(messages: MessageParam[], lane: string, options: RunOptions) {
  const turns = messages.flatMap(({ role }, i) => (role === 'assistant' ? i : []))
  // The cut is before a reply: no call is parted from its result.
  const old = messages.slice(0, turns.at(-KEEP_TURNS) ?? 0)
  const asked = old.filter(({ content }) => typeof content === 'string')
  const rest = old.filter((message) => !asked.includes(message))
  if (options.isSummary || rest.length < 2) return undefined
  const by = session.lanes.next(`${lane}.summary`)
  const summaryMessages: MessageParam[] = [...old]
  const summing = { ...options, prompt: SUM_UP, maxTurns: 0, lane: by, isSummary: true }
  const { text } = await agentLoop(summaryMessages, summing).catch((error) => {
    options.signal.throwIfAborted()
    session.print(`${lane} is not summed up: ${session.explain(error)}`)
    return { text: '' }
  })
  const summary: MessageParam = { role: 'user', content: [{ type: 'text', text }] }
  const isSmaller = JSON.stringify(summary).length < JSON.stringify(rest).length
  if (text.trim() === '' || !isSmaller) return false
  const replaced = rest.map((message) => messages.indexOf(message) + 1)
  session.lanes.of(messages).event('info', 'compacted', { replaced, by })
  // Where the last of them stood: the lane's file is read in the same order.
  const kept = old.map((message) => (message === rest.at(-1) ? summary : message))
  messages.splice(0, old.length, ...kept.filter((message) => !rest.includes(message)))
  session.log(messages, summary)
  session.print(`${lane}: ${by} stands for ${rest.length} messages`)
  return true
}

/** Each tool_use is answered by a tool_result with its id, all in one user message. */
async function runTools(reply: Message, lane: string, options: RunOptions) {
  const results: Promise<ToolResultBlockParam>[] = []
  let others: Promise<unknown> = Promise.resolve() // the last call that is no task
  for (const call of toolUses(reply)) {
    const run = async () => {
      const work = () => runTool(call, lane, options)
      const answer = isCut(reply) ? CUT_SHORT : await attempt(work)
      return { type: 'tool_result' as const, tool_use_id: call.id, ...answer }
    }
    const isTask = call.name === 'task'
    const before = isTask ? others : Promise.all(results)
    const result = before.then(() => (isTask ? AT_ONCE(run) : run()))
    if (!isTask) others = result
    results.push(result)
  }
  return Promise.all(results) // attempt never rejects: no failure takes another along
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
  const { agent, resume, worktree } = input
  if (resume && agent)
    throw new Error('A resumed child keeps its agent: leave agent out.')
  if (resume && worktree) throw new Error('A resumed child keeps its place: no worktree.')
  const profile = findProfile(resume ? recoverLane(session, resume).header.agent : agent)
  const lane = resume || session.lanes.next('sub')
  if (RUNNING.has(lane)) throw new Error(`${lane} is still at work: wait for its result.`)
  RUNNING.add(lane)
  return runInPlace(lane, profile, input).finally(() => RUNNING.delete(lane))
}

async function runInPlace(lane: string, profile: Profile | undefined, input: TaskInput) {
  const tree = await placeOf(lane, input)
  const settings = childSettings(profile, tree?.path ?? input.workdir)
  const outcome = await runChild({ ...settings, lane, worktree: tree?.branch }, input)
  if (!tree) return outcome
  return { ...outcome, worktree: await closeWorktree(input.workdir, tree) }
}

/** The child's own worktree, new or the one it had; undefined if it has none. */
function placeOf(lane: string, { resume, worktree, workdir }: TaskInput) {
  if (!resume) return worktree ? openWorktree(workdir, lane) : undefined
  const branch = recoverLane(session, resume).header.worktree
  return branch ? findWorktree(workdir, branch, lane) : undefined
}

async function runChild(settings: ChildSettings, input: TaskInput): Promise<Outcome> {
  const { resume, signal } = input
  const prompt = resume ? `${input.prompt}\n\n${FILES_CHANGED}` : input.prompt
  const subMessages: MessageParam[] = []
  if (resume) readBack(subMessages, resume, settings)
  const lane = session.openLane(subMessages, settings)
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
  return { ...ending, lane, lastWords: lastText(subMessages), turns, tokens }
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
  const { lane, status, lastWords, worktree, turns, tokens } = outcome
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
  const more =
    worktree?.kept === false ? '' : ` To go on with this child: resume "${lane}".`
  return [spent ? `${how} (${spent})` : how, words + note, worktree?.told, next + more]
    .filter(Boolean)
    .join('\n\n')
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
    system:
      SYSTEM.replace(session.workdir, () => workdir) +
      CHILD_SUFFIX +
      (body ? `\n\n# Agent profile\n\n${body}` : ''),
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

/** Fills an empty array from its lane's file, if it would run as it did. */
function readBack(messages: MessageParam[], lane: string, settings: LaneSettings): void {
  const file = recoverLane(session, lane, settings.workdir)
  const now = session.lanes.header(lane, settings)
  const differs = FIXED.filter((key) => !isDeepStrictEqual(file.header[key], now[key]))
  if (differs.length > 0) {
    throw new Error(`${lane} ran with another ${differs.join(', ')}: it cannot go on.`)
  }
  reopenLane(session, messages, file)
  repair(messages)
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

const PARENT = {
  system: SYSTEM,
  tools: PARENT_TOOLS,
  maxTurns: Number.POSITIVE_INFINITY,
  workdir: session.workdir,
}

session.orExit(() => {
  if (session.continued) readBack(parentHistory, 'parent', PARENT)
})

if (session.isNew) startRepository(session.workdir)

for (const { path, branch } of listWorktrees(session.workdir)) {
  session.print(`A worktree is left from an earlier run: ${path}, branch ${branch}`)
}

await session.run(PROMPT, (prompt) =>
  agentLoop(parentHistory, {
    ...PARENT,
    prompt,
    signal: session.stopSignal(),
  }).finally(() => repair(parentHistory)),
)
