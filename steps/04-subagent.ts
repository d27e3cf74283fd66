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
 * Changes    TOOLS (now CHILD_TOOLS and PARENT_TOOLS), CHILD_TOOLS, PARENT_TOOLS, SYSTEM,
 *            SUBAGENT_SYSTEM, MAX_TURNS, LoopOptions, LoopEnd, agentLoop, runSubagent,
 *            session.run
 * Run        npx tsx steps/04-subagent.ts
 * Log        diff -r logs/recorded/02-tool-use logs/04-subagent
 * Article    run_subagent → runSubagent, agent_loop → agentLoop,
 *            sub_messages → subMessages, history → parentHistory
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

type LoopOptions = {
  prompt: string
  system: string
  tools: Tool[]
  maxTurns: number
  workdir: string
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
  const { prompt, system, tools, maxTurns } = options
  session.openLane(messages, options)
  push(messages, { role: 'user', content: prompt })
  let text = ''
  for (let turn = 1; turn <= maxTurns; turn++) {
    const reply = await session.client.messages.create({
      model: session.model,
      max_tokens: 8000,
      system,
      tools,
      messages,
    })
    push(messages, { role: 'assistant', content: reply.content })
    text = textOf(reply) || text
    // The blocks decide whether there is work to do, not the stop_reason.
    if (toolUses(reply).length === 0) return { stopReason: reply.stop_reason, text }
    push(messages, { role: 'user', content: await runTools(reply, options) })
  }
  return { stopReason: 'max_turns', text }
}

/** Each tool_use gets its tool_result; throwing is how one says `is_error`. */
function runTools(reply: Message, { tools, workdir }: LoopOptions) {
  return answerCalls(reply, (call) => {
    const tool = tools.find(({ name }) => name === call.name)
    if (!tool) throw new Error(`No tool ${call.name}, only ${namesOf(tools)}.`)
    return tool.run(checkInput(tool, call.input), { workdir })
  })
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
  if (stopReason === 'end_turn') return text
  // An error, so that the parent does not take it for a summary.
  const why = stopReason === 'max_turns' ? `after ${MAX_TURNS} turns` : `by ${stopReason}`
  throw new Error(
    `The subagent was stopped ${why}, not done. Last words: ${text || 'none'}`,
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
