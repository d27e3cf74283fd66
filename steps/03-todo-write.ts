/**
 * 03 · Todo: a list that the model writes down keeps a long task on course.
 *
 *   before                    after
 *   messages                  messages
 *     assistant  tool_use       assistant  tool_use todo {items}
 *     user       tool_result    user       tool_result [x] … [>] … [ ] …
 *     …                         …          three rounds without todo:
 *                               user       tool_result, text "Reminder: …"
 *
 * Builds on  02
 * Changes    MARKS, TODO_ITEM, TOOLS, SYSTEM, REMINDER, agentLoop, renderTodos
 * Run        npx tsx steps/03-todo-write.ts
 * Log        diff logs/recorded/02-tool-use/parent.log logs/03-todo-write/parent.log
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

const MARKS = { pending: '[ ]', in_progress: '[>]', completed: '[x]' }

const TODO_ITEM = {
  type: 'object',
  properties: {
    text: { type: 'string' },
    status: { type: 'string', enum: Object.keys(MARKS) },
  },
  required: ['text', 'status'],
}

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
  {
    name: 'todo',
    description: 'Write the whole todo list, each time it changes; one item in_progress.',
    input_schema: {
      type: 'object',
      properties: { items: { type: 'array', items: TODO_ITEM, maxItems: 20 } },
      required: ['items'],
    },
    run: ({ items }) => renderTodos(items),
  },
]

const SYSTEM = `You are a coding agent in ${session.workdir}.
Plan with todo and keep the list true: change it before and after each item. Act with
your tools, check what you did, then say in a few words what there is now.`

const REMINDER = 'Reminder: three rounds without todo. Bring the list up to date.'

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
  let rounds = 0
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
    const results = await runTools(reply, options)
    rounds = toolUses(reply).some(({ name }) => name === 'todo') ? 0 : rounds + 1
    // Behind the results, since the API wants those first; and in this new message, since
    // an old one is the past.
    const due = rounds > 0 && rounds % 3 === 0
    const reminder = due ? [{ type: 'text' as const, text: REMINDER }] : []
    push(messages, { role: 'user', content: [...results, ...reminder] })
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

/** The list as the model and the reader see it, a line per item. */
function renderTodos(items: { text: string; status: keyof typeof MARKS }[]): string {
  const current = items.filter(({ status }) => status === 'in_progress')
  if (current.length > 1) throw new Error('Only one item can be in_progress at a time.')
  const list = items.map(({ text, status }) => `${MARKS[status]} ${text}`).join('\n')
  session.print(list)
  return list || 'The list is empty.'
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
