/**
 * 04 · Subagent: the same loop over another, empty messages array. Only its last text
 * comes back.
 *
 *   parentHistory                         subMessages
 *     user       the prompt
 *     assistant  tool_use task {prompt} ─▶  user       the task's prompt, nothing else
 *                                           assistant  tool_use     ┐ every call, every
 *                                           user       tool_result  ┘ mistake, at most 30
 *     user       tool_result ◀────────────  assistant  the last text
 *     assistant  the answer
 *
 * Apart: the array, the system prompt, the tools, the turn limit. Shared: this process,
 * the loop, the tools' code, the working directory and all that is done in it.
 *
 * Builds on  02
 * Changes    TOOLS (now CHILD_TOOLS, ready ones, and PARENT_TOOLS), CHILD_TOOLS,
 *            PARENT_TOOLS, SYSTEM, SUBAGENT_SYSTEM, MAX_TURNS, RunOptions, agentLoop,
 *            runSubagent, session.run
 * Run        npx tsx steps/04-subagent.ts
 * Log        diff -r logs/recorded/02-tool-use logs/04-subagent
 * Article    run_subagent → runSubagent, agent_loop → agentLoop,
 *            sub_messages → subMessages, history → parentHistory
 */
import type { Message, MessageParam, ToolUseBlock } from '@anthropic-ai/sdk/resources'
import { isCut, lastText, textOf, toolUses } from './support/base/messages.ts'
import { type Answer, openSession } from './support/session.ts'
import { bash } from './support/tools/bash.ts'
import { editFile, readFile, writeFile } from './support/tools/files.ts'
import {
  attempt,
  CUT_SHORT,
  checkInput,
  noSuch,
  type Tool,
} from './support/tools/tool.ts'
import { noteOnCalls } from './support/tools/written.ts'

const session = openSession(import.meta.filename)

const PROMPT =
  'Create hello.mjs: a documented function greet(name) and a check of it that runs with' +
  ' the file. Without a name it greets the world. Run it, and fix what fails.'

const CHILD_TOOLS = [bash, readFile, writeFile, editFile]

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
      },
      required: ['prompt'],
    },
    run: ({ prompt }, { workdir }) => runSubagent(prompt, workdir),
  },
]

const SYSTEM = `You are a coding agent in ${session.workdir}.
Hand work that takes several steps to a subagent with task, and check what it reports.`

const SUBAGENT_SYSTEM = `You are a subagent in ${session.workdir}.
Do the one task you are given with your tools, then report in a few words: your last text
is all that your caller gets.`

const MAX_TURNS = 30

type RunOptions = {
  prompt: string
  system: string
  tools: Tool[]
  maxTurns: number
  workdir: string
}

/** The one place where a history grows: what is pushed is a line of the array's log. */
function push(messages: MessageParam[], message: MessageParam): void {
  messages.push(message)
  session.log(messages, message)
}

async function agentLoop(messages: MessageParam[], options: RunOptions): Promise<Answer> {
  const { prompt, system, tools, maxTurns } = options
  // Each array has a log file, its lane: opened once, and found again by the array.
  session.openLane(messages, options)
  push(messages, { role: 'user', content: prompt })
  for (let turn = 1; turn <= maxTurns; turn++) {
    const request = { model: session.model, max_tokens: 8000, system, tools, messages }
    const reply = await session.client.messages.create(request)
    const { content, stop_reason: stopReason } = reply
    // The API refuses a history with an empty message in it.
    if (content.length > 0) push(messages, { role: 'assistant', content })
    // The blocks decide whether there is work to do, not the stop_reason.
    if (toolUses(reply).length === 0) return { stopReason, text: textOf(reply) }
    push(messages, { role: 'user', content: await runTools(reply, options) })
  }
  return { stopReason: 'max_turns', text: '' } // our own word, beside the API's
}

/** Each tool_use is answered by a tool_result with its id, all in one user message. */
async function runTools(reply: Message, options: RunOptions) {
  const results = []
  for (const call of toolUses(reply)) {
    const answer = isCut(reply) ? CUT_SHORT : await attempt(() => runTool(call, options))
    results.push({ type: 'tool_result' as const, tool_use_id: call.id, ...answer })
  }
  return results
}

/** Throwing is how a tool says is_error. */
function runTool(call: ToolUseBlock, { tools, workdir }: RunOptions) {
  const tool = tools.find(({ name }) => name === call.name)
  if (!tool) throw new Error(noSuch('tool', call.name, tools))
  return tool.run(checkInput(tool, call.input), { workdir })
}

async function runSubagent(prompt: string, workdir: string): Promise<string> {
  const subMessages: MessageParam[] = []
  const { stopReason, text } = await agentLoop(subMessages, {
    prompt,
    system: SUBAGENT_SYSTEM,
    tools: CHILD_TOOLS,
    maxTurns: MAX_TURNS,
    workdir,
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
