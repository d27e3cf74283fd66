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
 * Changes    MARKS, TODO_ITEM, TOOLS (ready ones and todo), SYSTEM, REMINDER, agentLoop,
 *            renderTodos
 * Run        npx tsx steps/03-todo-write.ts
 * Log        diff logs/recorded/02-tool-use/parent.log logs/03-todo-write/parent.log
 */
import type { Message, MessageParam, ToolUseBlock } from '@anthropic-ai/sdk/resources'
import { isCut, textOf, toolUses } from './support/base/messages.ts'
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
  bash,
  readFile,
  writeFile,
  editFile,
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
  let rounds = 0
  while (true) {
    const request = { model: session.model, max_tokens: 8000, system, tools, messages }
    const reply = await session.client.messages.create(request)
    const { content, stop_reason: stopReason } = reply
    // The API refuses a history with an empty message in it.
    if (content.length > 0) push(messages, { role: 'assistant', content })
    // The blocks decide whether there is work to do, not the stop_reason.
    if (toolUses(reply).length === 0) return { stopReason, text: textOf(reply) }
    const results = await runTools(reply, options)
    rounds = toolUses(reply).some(({ name }) => name === 'todo') ? 0 : rounds + 1
    // Behind the results, since the API wants those first; and in this new message, since
    // an old one is the past.
    const due = rounds > 0 && rounds % 3 === 0
    const reminder = due ? [{ type: 'text' as const, text: REMINDER }] : []
    push(messages, { role: 'user', content: [...results, ...reminder] })
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
  const tool = tools.find(({ name }) => name === call.name)
  if (!tool) throw new Error(noSuch('tool', call.name, tools))
  return tool.run(checkInput(tool, call.input), { workdir })
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
