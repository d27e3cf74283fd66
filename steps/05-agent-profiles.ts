/**
 * 05 · Agent profiles: a Markdown file says what a subagent is and which tools it has.
 *
 *   parentHistory                         subMessages
 *     assistant  task {agent, prompt} ──▶   user       the prompt
 *                                           system     the parent's + suffix + the file's
 *                                                      body
 *                                           tools      the parent's - task, cut to the
 *                                                      file's list
 *     user       tool_result ◀───────────   assistant  the last text
 *
 * The parent's model sees only names and descriptions. What a list leaves out cannot be
 * called, whatever a prompt says.
 *
 * Builds on  04
 * Changes    PROMPT, AGENTS, PARENT_TOOLS, AGENT_LIST, SYSTEM,
 *            SUBAGENT_SYSTEM (now CHILD_SUFFIX), CHILD_SUFFIX, LoopOptions, agentLoop,
 *            TaskInput, runSubagent
 * Run        npx tsx steps/05-agent-profiles.ts
 * Log        diff logs/recorded/05-agent-profiles/parent.log
 *            logs/05-agent-profiles/sub-1.log
 */
import type { Message, MessageParam } from '@anthropic-ai/sdk/resources/messages'
import { type Effort, loadProfiles } from './support/agents/profiles.ts'
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
${AGENT_LIST.join('\n')}`

const CHILD_SUFFIX = `

# Subagent mode
You were started by another agent for one task. You have no task tool and nobody to ask:
finish it yourself. Your last text goes back as it is, and nothing else does.`

const MAX_TURNS = 30

type LoopOptions = {
  prompt: string
  system: string
  tools: Tool[]
  maxTurns: number
  workdir: string
  model?: string
  effort?: Effort
}

type TaskInput = { prompt: string; agent?: string; workdir: string }

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
  const { prompt, system, tools, maxTurns, effort } = options
  session.openLane(messages, options)
  push(messages, { role: 'user', content: prompt })
  let text = ''
  for (let turn = 1; turn <= maxTurns; turn++) {
    const reply = await session.client.messages.create({
      model: options.model ?? session.model,
      max_tokens: 8000,
      ...(effort && { output_config: { effort } }),
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

async function runSubagent({ prompt, agent, workdir }: TaskInput): Promise<string> {
  const profile = AGENTS.get(agent ?? '')
  if (agent && !profile) {
    throw new Error(`No agent ${agent}, only ${[...AGENTS.keys()].join(', ') || 'none'}.`)
  }
  const subMessages: MessageParam[] = []
  const { stopReason, text } = await agentLoop(subMessages, {
    prompt,
    system:
      SYSTEM + CHILD_SUFFIX + (profile ? `\n\n# Agent profile\n\n${profile.body}` : ''),
    // A profile narrows: whatever it names, there is no more than CHILD_TOOLS to have.
    tools: CHILD_TOOLS.filter(({ name }) => profile?.tools?.includes(name) ?? true),
    maxTurns: MAX_TURNS,
    workdir,
    model: profile?.model,
    effort: profile?.effort,
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
