/** The exercises of the chapters: an edit to a step, and what its run then shows. */
import assert from 'node:assert/strict'
import { type LaneFile, requestSizes } from '../steps/support/base/lane-file.ts'
import { EXERCISES_2 } from './exercises-2.ts'

export type Exercise = {
  step: string
  /** Whole lines of the step, and what the reader makes of them. */
  from: string
  to: string
  /** The story that the chapter tells. `output` is what the terminal shows. */
  expect: (run: { code: number; output: string; lanes: LaneFile[] }) => void
}

/** Messages of a lane as text: that number `n` (from 1), or all. */
function said({ messages }: LaneFile, n?: number): string {
  return JSON.stringify(n === undefined ? messages : messages[n - 1])
}

/** The run ended because the API refused a request; all of it is in the lane's log. */
function refused(
  { code, output, lanes }: Parameters<Exercise['expect']>[0],
  why: RegExp,
) {
  assert.equal(code, 1)
  assert.match(output, /^400 invalid_request_error: /m)
  const last = lanes[0].lines.at(-1)
  assert.equal(last?.event, 'api_error')
  assert.match(String(last?.error.message), why)
}

const NO_RESULT = /`tool_use` ids were found without `tool_result` blocks/
const NOTE = /on the model answers the recording, not your edit/

const EXERCISES_1: Record<string, Exercise> = {
  '01-no-results': {
    step: '01-agent-loop',
    from: "    push(messages, { role: 'user', content: await runTools(reply, options) })",
    to: '    await runTools(reply, options)',
    expect(run) {
      refused(run, NO_RESULT)
      assert.equal(run.lanes[0].messages.length, 2)
    },
  },
  '01-no-memory': {
    step: '01-agent-loop',
    from: '      tools,\n      messages,',
    to: '      tools,\n      messages: messages.slice(-1),',
    expect(run) {
      refused(run, /unexpected `tool_use_id` found in `tool_result` blocks: tool_1/)
      assert.equal(run.lanes[0].messages.length, 3)
    },
  },
  '02-no-edit': {
    step: '02-tool-use',
    from: '    tools: TOOLS,',
    to: '    tools: TOOLS.slice(0, 3),',
    expect({ code, output, lanes: [parent] }) {
      assert.equal(code, 0)
      assert.match(output, NOTE)
      assert.match(said(parent, 9), /No tool edit_file, only .*"is_error":true/)
      assert.match(said(parent, 11), /FAILED - Hello, undefined!/)
      assert.match(said(parent, 12), /both checks pass/)
    },
  },
  '02-required': {
    step: '02-tool-use',
    from:
      "      properties: { path: { type: 'string' }, limit: { type: 'integer', minimum: 1 } },\n" +
      "      required: ['path'],",
    to:
      "      properties: { path: { type: 'string' }, limit: { type: 'integer', minimum: 1 } },\n" +
      "      required: ['path', 'limit'],",
    expect({ code, lanes: [parent] }) {
      assert.equal(code, 0)
      assert.match(said(parent, 5), /read_file\.limit is missing.*"is_error":true/)
      assert.equal(said(parent).match(/is_error/g)?.length, 1)
      assert.match(said(parent, 11), /ok - Hello, world!/)
    },
  },
  '03-reminder-first': {
    step: '03-todo-write',
    from: "    push(messages, { role: 'user', content: [...results, ...reminder] })",
    to: "    push(messages, { role: 'user', content: [...reminder, ...results] })",
    expect(run) {
      refused(run, NO_RESULT)
      const [parent] = run.lanes
      assert.match(
        said(parent, parent.messages.length),
        /^\S+"content":\[\{"type":"text"/,
      )
      assert.equal(said(parent).match(/Reminder/g)?.length, 1)
    },
  },
  '03-every-round': {
    step: '03-todo-write',
    from: '    const due = rounds > 0 && rounds % 3 === 0',
    to: '    const due = rounds > 0',
    expect({ code, output, lanes: [parent] }) {
      assert.equal(code, 0)
      assert.match(output, NOTE)
      const rounds = parent.messages.filter(({ role }) => role === 'assistant')
      const other = rounds.filter((message) =>
        /"tool_use".*"name":"(?!todo)/.test(JSON.stringify(message)),
      )
      assert.equal(said(parent).match(/Reminder/g)?.length, other.length)
    },
  },
  '04-cap': {
    step: '04-subagent',
    from: 'const MAX_TURNS = 30',
    to: 'const MAX_TURNS = 2',
    expect({ code, output, lanes: [parent, child] }) {
      assert.equal(code, 0)
      assert.match(output, NOTE)
      assert.equal(child.header.max_turns, 2)
      assert.equal(child.messages.length, 1 + 2 + 2)
      assert.match(
        said(parent, 3),
        /stopped after 2 turns.*Last words: none","is_error":true/,
      )
      assert.match(said(parent, 5), /function greet\(name\)/)
      assert.match(said(parent, 6), /defaults to 'world'/)
    },
  },
  '04-one-array': {
    step: '04-subagent',
    from: '  const subMessages: MessageParam[] = []',
    to: '  const subMessages = parentHistory',
    expect(run) {
      refused(run, NO_RESULT)
      const [parent, ...others] = run.lanes
      assert.equal(others.length, 0)
      const events = parent.lines.filter(({ event }) => event === 'api_error')
      assert.equal(events.length, 2)
      assert.match(said(parent, 4), /"tool_result".*"is_error":true/)
    },
  },
  '04-transcript': {
    step: '04-subagent',
    from: "  if (stopReason === 'end_turn') return text",
    to: "  if (stopReason === 'end_turn') return JSON.stringify(subMessages)",
    expect({ code, output, lanes: [parent, child] }) {
      assert.equal(code, 0)
      assert.match(output, NOTE)
      assert.match(said(parent, 3), /edit_file.*both checks pass/)
      assert.equal(child.messages.length, 12)
      const largest = Math.max(...requestSizes(parent))
      assert(largest > Math.max(...requestSizes(child)))
    },
  },
}

export const EXERCISES: Record<string, Exercise> = { ...EXERCISES_1, ...EXERCISES_2 }
