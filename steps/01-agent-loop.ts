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
import type { Message, MessageParam } from '@anthropic-ai/sdk/resources/messages'
import { openSession } from './support/session.ts'
import { bash, SHELL } from './support/tools/bash.ts'
import {
  answerCalls,
  checkInput,
  type Tool,
  textOf,
  toolUses,
} from './support/tools/tool.ts'

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
    run: bash,
  },
]

const SYSTEM = `You are a coding agent in ${session.workdir}.
Act with your tools, check what you did, then say in a few words what there is now.`

type LoopOptions = { prompt: string; system: string; tools: Tool[]; workdir: string }

type LoopEnd = { stopReason: Message['stop_reason']; text: string }

/** The one place where a history grows: what is pushed is a line of the lane's log. */
function push(messages: MessageParam[], message: MessageParam): void {
  messages.push(message)
  session.log(messages, message)
}

async function agentLoop(
  messages: MessageParam[],
  options: LoopOptions,
): Promise<LoopEnd> {
  const { prompt, system, tools } = options
  session.openLane(messages, options)
  push(messages, { role: 'user', content: prompt })
  while (true) {
    const reply = await session.client.messages.create({
      model: session.model,
      max_tokens: 8000,
      system,
      tools,
      messages,
    })
    push(messages, { role: 'assistant', content: reply.content })
    // The blocks decide whether there is work to do, not the stop_reason.
    if (toolUses(reply).length === 0) {
      return { stopReason: reply.stop_reason, text: textOf(reply) }
    }
    push(messages, { role: 'user', content: await runTools(reply, options) })
  }
}

/** Each tool_use gets its tool_result; throwing is how one says `is_error`. */
function runTools(reply: Message, { tools, workdir }: LoopOptions) {
  return answerCalls(reply, (call) => {
    const [bash] = tools
    if (call.name !== bash.name) throw new Error(`No tool ${call.name} here, only bash.`)
    return bash.run(checkInput(bash, call.input), { workdir })
  })
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
