/**
 * 01 · Agent loop: ask the model, run what it asks for, ask again, until it only talks.
 *
 *   before  messages = [ user ]
 *   after   messages = [ user, assistant tool_use, user tool_result, …, assistant text ]
 *
 * Builds on  nothing
 * Run        npx tsx steps/01-agent-loop.ts
 * Log        logs/01-agent-loop/parent.log
 */
import type { Message, MessageParam, ToolUseBlock } from '@anthropic-ai/sdk/resources'
import { isCut, textOf, toolUses } from './support/base/messages.ts'
import { type Answer, openSession } from './support/session.ts'
import { runBash, SHELL } from './support/tools/bash.ts'
import { attempt, CUT_SHORT, checkInput, type Tool } from './support/tools/tool.ts'

const session = openSession(import.meta.filename)

const PROMPT =
  'Create hello.mjs: a documented function greet(name) and a check of it that runs with' +
  ' the file. Without a name it greets the world. Run it, and fix what fails.'

const TOOLS: Tool[] = [
  {
    name: 'bash',
    description: `Run a command with ${SHELL} in the working directory; cd is not kept.`,
    input_schema: {
      type: 'object',
      properties: { command: { type: 'string' } },
      required: ['command'],
    },
    run: runBash,
  },
]

const SYSTEM = `You are a coding agent in ${session.workdir}.
Act with your tools, check what you did, then say in a few words what there is now.`

type RunOptions = { prompt: string; system: string; tools: Tool[]; workdir: string }

/** The one place where a history grows: what is pushed is a line of the array's log. */
function push(messages: MessageParam[], message: MessageParam): void {
  messages.push(message)
  session.log(messages, message)
}

async function agentLoop(messages: MessageParam[], options: RunOptions): Promise<Answer> {
  const { prompt, system, tools } = options
  // Each array has a log file, its lane: opened once, and found again by the array.
  session.openLane(messages, options)
  push(messages, { role: 'user', content: prompt })
  while (true) {
    const request = { model: session.model, max_tokens: 8000, system, tools, messages }
    const reply = await session.client.messages.create(request)
    const { content, stop_reason: stopReason } = reply
    // The API refuses a history with an empty message in it.
    if (content.length > 0) push(messages, { role: 'assistant', content })
    // The blocks decide whether there is work to do, not the stop_reason.
    if (toolUses(reply).length === 0) return { stopReason, text: textOf(reply) }
    push(messages, { role: 'user', content: await runTools(reply, options) })
  }
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
  const [tool] = tools
  if (call.name !== tool.name) throw new Error(`No tool ${call.name}, only ${tool.name}.`)
  return tool.run(checkInput(tool, call.input), { workdir })
}

const parentHistory: MessageParam[] = []

await session.run(PROMPT, (prompt) =>
  agentLoop(parentHistory, {
    prompt,
    system: SYSTEM,
    tools: TOOLS,
    workdir: session.workdir,
  }),
)
