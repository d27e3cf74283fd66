/** The exercises of the chapters 05 to 10, in the shape of exercises.ts. */
import assert from 'node:assert/strict'
import type { LaneFile } from '../steps/support/base/lane-file.ts'
import type { Exercise } from './exercises.ts'

/** Messages of a lane as text: that number `n` (from 1), or all. */
function said({ messages }: LaneFile, n?: number): string {
  return JSON.stringify(n === undefined ? messages : messages[n - 1])
}

const namesOf = (lanes: LaneFile[]) => lanes.map(({ name }) => name)
const toolsOf = ({ header }: LaneFile) =>
  header.tools.map(({ name }: { name: string }) => name)
const NOTE = /on the model answers the recording, not your edit/

export const EXERCISES_2: Record<string, Exercise> = {
  '05-no-list': {
    step: '05-agent-profiles',
    from: '    tools: CHILD_TOOLS.filter(({ name }) => profile?.tools?.includes(name) ?? true),',
    to: '    tools: CHILD_TOOLS,',
    expect({ code, output, lanes: [, child] }) {
      assert.equal(code, 0)
      assert.match(output, NOTE)
      assert(toolsOf(child).includes('write_file'))
      assert.match(child.header.system, /change nothing/)
      assert.match(said(child, 11), /Wrote \d+ bytes to NOTES\.md"\}/)
      assert.doesNotMatch(said(child), /is_error/)
    },
  },
  '05-unknown-tool': {
    step: '05-agent-profiles',
    from: 'const AGENTS = loadProfiles(session, CHILD_TOOLS)',
    to: 'const AGENTS = loadProfiles(session, CHILD_TOOLS.slice(1))',
    expect({ code, output, lanes }) {
      assert.equal(code, 0)
      assert.match(output, /scout\.md: line 4: tools names bash, which is none of read_/)
      assert.deepEqual(namesOf(lanes), ['parent'])
      assert.doesNotMatch(lanes[0].header.system, /scout/)
      assert.match(said(lanes[0], 3), /No agent scout.*"is_error":true/)
    },
  },
  '06-no-rule': {
    step: '06-tool-gate',
    from: "  ['bash', 'command', /^node \\w[\\w/-]*\\.mjs$/],\n  ['task', 'prompt', /./],",
    to: "  ['task', 'prompt', /./],",
    expect({ code, output, lanes: [parent, child] }) {
      assert.equal(code, 0)
      assert.match(output, NOTE)
      const refusal = /Of bash only nothing may run\..*"is_error":true/
      for (const n of [9, 13]) assert.match(said(parent, n), refusal)
      assert.match(said(child, 3), refusal)
      assert.match(said(parent, 14), /test\.mjs checks .* and passes/)
    },
  },
  '06-open-end': {
    step: '06-tool-gate',
    from: "  ['bash', 'command', /^node \\w[\\w/-]*\\.mjs$/],",
    to: "  ['bash', 'command', /^node /],",
    expect({ code, output, lanes: [parent, child] }) {
      assert.equal(code, 0)
      assert.match(output, NOTE)
      assert.match(said(child, 2), /"node -p .*readdirSync/)
      assert.match(said(child, 3), /"README\.md src test\.mjs /)
      assert.doesNotMatch(said(child) + said(parent), /Refused/)
    },
  },
  '06-parent-only': {
    step: '06-tool-gate',
    from: '    await onToolCall(tool.name, input, lane)',
    to: "    if (lane === 'parent') await onToolCall(tool.name, input, lane)",
    expect({ code, lanes: [parent, child] }) {
      assert.equal(code, 0)
      assert.match(said(child, 3), /"README\.md src test\.mjs /)
      assert.doesNotMatch(said(child) + said(parent), /Refused/)
    },
  },
  '07-ctrl-c': {
    step: '07-stop',
    from: '  const timer = ms && setTimeout(timedOut, ms)',
    to: "  const timer = ms && setTimeout(() => process.emit('SIGINT'), ms)",
    expect({ code, output, lanes: [parent, child] }) {
      assert.equal(code, 130)
      assert.match(output, /✗ Stopped by Ctrl\+C\./)
      assert.equal(parent.messages.length, 3)
      assert.match(said(parent, 3), /"Stopped by Ctrl\+C\.","is_error":true/)
      assert.equal(child.messages.length, 1)
      assert.equal(child.lines.at(-1)?.event, 'no_answer')
    },
  },
  '07-no-reason': {
    step: '07-stop',
    from: '    throw child.signal.aborted ? child.signal.reason : error',
    to: '    throw error',
    expect({ code, output, lanes: [parent] }) {
      assert.equal(code, 0)
      assert.match(output, NOTE)
      assert.match(said(parent, 3), /"is_error":true/)
      assert.doesNotMatch(said(parent, 3), /timed out|1000/)
      assert.equal(parent.messages.length, 16)
    },
  },
  '07-minimum': {
    step: '07-stop',
    from: "        timeoutMs: { type: 'integer', minimum: 1000, maximum: 2 ** 31 - 1 },",
    to: "        timeoutMs: { type: 'integer', minimum: 5000, maximum: 2 ** 31 - 1 },",
    expect({ code, lanes }) {
      assert.equal(code, 0)
      assert.deepEqual(namesOf(lanes), ['parent'])
      assert.match(said(lanes[0], 3), /timeoutMs must be at least 5000.*"is_error":true/)
    },
  },
  '08-no-flag': {
    step: '08-failure',
    from:
      "      if (outcome.status === 'completed') return taskResult(outcome)\n" +
      '      throw new Error(taskResult(outcome))',
    to: '      return taskResult(outcome)',
    expect({ code, output, lanes: [parent] }) {
      assert.equal(code, 0)
      assert.match(output, NOTE)
      assert.doesNotMatch(output, /✗/)
      assert.match(said(parent, 3), /"content":"crashed: .*Its last words, no report/)
      assert.doesNotMatch(said(parent, 3), /is_error/)
    },
  },
  '08-cap': {
    step: '08-failure',
    from: 'const MAX_TURNS = 30',
    to: 'const MAX_TURNS = 1',
    expect({ code, output, lanes: [parent, child] }) {
      assert.equal(code, 0)
      assert.match(output, NOTE)
      assert.match(said(child, 3), /"tool_result".*"text":"That was your last turn/)
      assert.equal(child.messages.length, 5)
      assert.match(said(child, 5), /"content":"Unknown: the run ended before/)
      const { event, status, turns } = child.lines.at(-1) ?? {}
      assert.deepEqual([event, status, turns], ['outcome', 'capped', 2])
      assert.match(said(parent, 3), /capped at 1 .*no report.*login\(\).*"is_error":true/)
    },
  },
  '09-clock': {
    step: '09-resume',
    from: '  const { body, tools, model, effort, timeout } = profile ?? {}',
    to:
      '  const { tools, model, effort, timeout } = profile ?? {}\n' +
      "  const body = [profile?.body, 'It is', new Date().toISOString()].join(' ')",
    expect({ code, output, lanes: [parent, child] }) {
      assert.equal(code, 0)
      assert.match(output, /from sub-1 1 on the model answers the recording/)
      assert.match(said(parent, 5), /sub-1 ran with another system: .*"is_error":true/)
      assert.equal(child.messages.length, 10)
    },
  },
  '09-unknown-child': {
    step: '09-resume',
    from: '      const task = { prompt, agent, timeoutMs, resume, workdir, signal }',
    to: "      const task = { prompt, agent, timeoutMs, resume: resume && 'sub-7', workdir, signal }",
    expect({ code, lanes }) {
      assert.equal(code, 0)
      assert.deepEqual(namesOf(lanes), ['parent', 'sub-1'])
      assert.match(
        said(lanes[0], 5),
        /no sub-7 in this run, only sub-1\..*"is_error":true/,
      )
      assert.equal(lanes[1].messages.length, 10)
    },
  },
  '09-torn-line': {
    step: '09-resume',
    from: '  const { prompt, agent, resume, workdir, signal } = input',
    to:
      '  const { prompt, agent, resume, workdir, signal } = input\n' +
      "  const { appendFileSync } = await import('node:fs')\n" +
      '  if (resume) appendFileSync(\'logs/09-resume/sub-1.log\', \'{"level":"info","ro\')',
    expect({ code, output, lanes: [parent, child] }) {
      assert.equal(code, 0)
      assert.doesNotMatch(output, NOTE)
      assert.doesNotMatch(said(parent), /is_error/)
      assert.equal(child.messages.length, 14)
    },
  },
  '10-one-at-a-time': {
    step: '10-parallel',
    from: 'const AT_ONCE = atMost(4)',
    to: 'const AT_ONCE = atMost(1)',
    expect({ code, output, lanes }) {
      assert.equal(code, 0)
      assert.doesNotMatch(output, NOTE)
      assert.deepEqual(namesOf(lanes), ['parent', 'sub-1', 'sub-2', 'sub-3', 'sub-4'])
      const headings = output.match(/^ {2}sub-\d$/gm)?.map((line) => line.trim())
      assert.deepEqual(headings, ['sub-1', 'sub-2', 'sub-3', 'sub-4'])
    },
  },
  '10-one-fails': {
    step: '10-parallel',
    from: '  RUNNING.add(lane)',
    to: "  RUNNING.add(lane)\n  if (lane === 'sub-1') throw new Error('A bad day for sub-1.')",
    expect({ code, output, lanes }) {
      assert.equal(code, 0)
      assert.match(output, NOTE)
      assert.deepEqual(namesOf(lanes), ['parent', 'sub-2', 'sub-3', 'sub-4'])
      assert.match(
        said(lanes[0], 3),
        /"tool_1","content":"A bad day.*"is_error":true.*"tool_2","content":"completed/,
      )
      assert.equal(said(lanes[0], 3).match(/is_error/g)?.length, 1)
    },
  },
  '10-no-merge': {
    step: '10-parallel',
    from: "  ['bash', 'command', /^git (merge -q|diff|checkout -q --) [\\w./-]+$/],",
    to: "  ['bash', 'command', /^git (diff|checkout -q --) [\\w./-]+$/],",
    expect({ code, output, lanes: [parent] }) {
      assert.equal(code, 0)
      assert.match(output, NOTE)
      assert.match(
        said(parent, 5),
        /on branch agent\/sub-3 is kept\. Changed: src\/config/,
      )
      assert.match(said(parent, 7), /Refused, not run.*"is_error":true/)
      assert.match(said(parent, 9), /FAILED - five wrong passwords lock a user out/)
      assert.match(said(parent, 10), /All checks pass/)
    },
  },
}
