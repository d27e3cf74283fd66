/**
 * 06 · Tool gate: one check before every call, for the parent and its children alike.
 *
 *   before                           after
 *   messages                         messages
 *     assistant  tool_use bash …       assistant  tool_use bash …   ── onToolCall: no
 *     user       tool_result …         user       tool_result is_error "Refused: …"
 *                                      assistant  another way, or its report
 *
 * Parent and child run the same runTool, so no child is freer than its parent. On a
 * terminal, live, the reader is asked; elsewhere what no rule allows is refused.
 *
 * Builds on  05
 * Changes    RULES, agentLoop, runTools, runTool, onToolCall
 * Run        npx tsx steps/06-tool-gate.ts
 * Log        diff logs/recorded/05-agent-profiles/sub-1.log logs/06-tool-gate/sub-1.log
 */
import type { Message, MessageParam, ToolUseBlock } from '@anthropic-ai/sdk/resources'
import { type Effort, loadProfiles, type Profile } from './support/agents/profiles.ts'
import { isCut, lastText, textOf, toolUses } from './support/base/messages.ts'
import { type Answer, openSession } from './support/session.ts'
import { ask } from './support/terminal/ask.ts'
import { bash } from './support/tools/bash.ts'
import { editFile, readFile, writeFile } from './support/tools/files.ts'
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
      },
      required: ['prompt'],
    },
    run: ({ prompt, agent }, { workdir }) => runSubagent({ prompt, agent, workdir }),
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
}

type TaskInput = { prompt: string; agent?: string; workdir: string }

/** The one place where a history grows: what is pushed is a line of the array's log. */
function push(messages: MessageParam[], message: MessageParam): void {
  messages.push(message)
  session.log(messages, message)
}

async function agentLoop(messages: MessageParam[], options: RunOptions): Promise<Answer> {
  const { prompt, system, tools, maxTurns, effort } = options
  // Each array has a log file, its lane: opened once, and found again by the array.
  const lane = session.openLane(messages, options)
  push(messages, { role: 'user', content: prompt })
  for (let turn = 1; turn <= maxTurns; turn++) {
    const request = {
      model: options.model ?? session.model,
      max_tokens: 8000,
      ...(effort && { output_config: { effort } }),
      system,
      tools,
      messages,
    }
    const reply = await session.client.messages.create(request)
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
  const { tools, workdir } = options
  const tool = tools.find(({ name }) => name === call.name)
  if (!tool) throw new Error(noSuch('tool', call.name, tools))
  const input = checkInput(tool, call.input)
  await onToolCall(tool.name, input, lane)
  return tool.run(input, { workdir })
}

/** Comes before every call; throws the reason why it may not run. */
async function onToolCall(name: string, input: ToolInput, lane: string): Promise<void> {
  const fits = RULES.some(
    ([tool, field, allowed]) => tool === name && allowed.test(input[field]),
  )
  // All of the input: what a question leaves out could not be refused.
  if (fits || (await ask(session, `${lane}: ${name} ${JSON.stringify(input)}`))) return
  const allowed = RULES.filter(([tool]) => tool === name).map(([, , regex]) => regex)
  const most = allowed.length > 0 ? `Of ${name} only ${allowed.join(', ')}` : `No ${name}`
  throw new Error(`Refused, not run. ${most} may run.`)
}

async function runSubagent({ prompt, agent, workdir }: TaskInput): Promise<string> {
  const settings = childSettings(findProfile(agent), workdir)
  const subMessages: MessageParam[] = []
  const { stopReason, text } = await agentLoop(subMessages, { ...settings, prompt })
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
  }),
)
