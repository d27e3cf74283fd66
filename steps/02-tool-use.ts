/**
 * 02 · Tool use: more tools, and a dispatch that looks them up; the loop does not change.
 *
 *   before                      after
 *   messages                    messages
 *     …                           …
 *     assistant  bash …           assistant  write_file …  ┐
 *     user       tool_result      user       tool_result   │ all of the work stays in
 *     …                           assistant  read_file …   │ this one history and is
 *                                 user       tool_result   │ sent with every request
 *                                 …                        ┘
 *
 * Builds on  01
 * Changes    TOOLS, runTools
 * Run        npx tsx steps/02-tool-use.ts
 * Log        diff logs/recorded/01-agent-loop/parent.log logs/02-tool-use/parent.log
 */
import type { Message, MessageParam } from '@anthropic-ai/sdk/resources/messages'
import { openSession } from './support/session.ts'
import { bash, SHELL } from './support/tools/bash.ts'
import { editFile, readFile, writeFile } from './support/tools/files.ts'
import {
  answerCalls,
  checkInput,
  namesOf,
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
    const tool = tools.find(({ name }) => name === call.name)
    if (!tool) throw new Error(`No tool ${call.name}, only ${namesOf(tools)}.`)
    return tool.run(checkInput(tool, call.input), { workdir })
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
