/** The offline model by itself: which lane answers what, also after a compaction. */
import assert from 'node:assert/strict'
import { describe, test } from 'node:test'
import type { APIRequest } from '@anthropic-ai/sdk'
import type { MessageParam } from '@anthropic-ai/sdk/resources/messages'
import type { Lane } from '../steps/support/base/lane.ts'
import { compact, type LaneLine, mapStrings } from '../steps/support/base/lane-file.ts'
import { promptsOf, replay } from '../steps/support/model/replay.ts'

// biome-ignore lint/suspicious/noExplicitAny: blocks of any kind
const user = (content: any): LaneLine => ({ role: 'user', content })
const says = (text: string): LaneLine => {
  const content = [{ type: 'text' as const, text }]
  return { role: 'assistant', content, stop_reason: 'end_turn' }
}
const looks = (id: string): LaneLine => ({
  role: 'assistant',
  content: [{ type: 'tool_use', id, name: 'look', input: { path: '<workdir>/a' } }],
  stop_reason: 'tool_use',
})
const sees = (tool_use_id: string, content = 'It is there.') =>
  user([{ type: 'tool_result', tool_use_id, content }])
const compacted = (...replaced: number[]) => ({ event: 'compacted', replaced })
const look = { name: 'look', description: 'Looks.', input_schema: { type: 'object' } }

const laneOf = (name: string, lines: LaneLine[]) => {
  const header = { lane: name, model: 'scripted', system: 'S', tools: [look] }
  return { name, header, lines, messages: [] }
}

/** A run against recorded lanes: `ask` sends an array as the lane of a name. */
function start(recorded: Record<string, LaneLine[]>) {
  const told: string[] = []
  let asking: Lane
  const middleware = replay({
    folder: 'logs/x',
    lanes: Object.entries(recorded).map(([name, lines]) => laneOf(name, lines)),
    laneOf: () => asking,
    tell: (line) => told.push(line),
  })
  const ask = async (name: string, messages: MessageParam[]) => {
    const paths = {
      clean: (value: unknown) => mapStrings(value, (s) => s.replace('/w/', '<workdir>/')),
      restore: (value: unknown) =>
        mapStrings(value, (s) => s.replace('<workdir>/', '/w/')),
    }
    asking = { name, header: { system: 'S', tools: [look] }, ...paths } as Lane
    const body = { model: 'm', max_tokens: 9, system: 'S', tools: [look], messages }
    const context = { options: { body } } as unknown as Parameters<typeof middleware>[2]
    const request = {} as APIRequest
    const response = await middleware(request, () => assert.fail('asked'), context)
    // biome-ignore lint/suspicious/noExplicitAny: blocks of any kind
    return { status: response.status, ...((await response.json()) as any) }
  }
  return { ask, told }
}

/** Goes through a lane as a step does: each answer is pushed, other lines are as recorded. */
async function follow(
  ask: ReturnType<typeof start>['ask'],
  name: string,
  lines: LaneLine[],
  messages: MessageParam[] = [],
) {
  let replaced: number[] | undefined
  for (const line of lines) {
    if (line.event === 'compacted') replaced = line.replaced
    else if (line.role === 'assistant') {
      const { content } = await ask(name, messages)
      const given = JSON.parse(JSON.stringify(content).replaceAll('/w/', '<workdir>/'))
      assert.deepEqual(given, line.content)
      messages.push({ role: 'assistant', content } as MessageParam)
    } else {
      const message = { role: 'user', content: line.content } as MessageParam
      if (replaced) messages.splice(0, Infinity, ...compact(messages, replaced, message))
      else messages.push(message)
      replaced = undefined
    }
  }
  return messages
}

const BEFORE = [user('Find it.'), looks('a'), sees('a'), looks('b'), sees('b')]
const ONCE = [...BEFORE, compacted(2, 3), user('Summary 1.'), looks('c'), sees('c')]
const TWICE = [...ONCE, compacted(2, 3, 4), user('Summary 2.'), says('Found.')]
// What a lane held when it was opened is a copy, which no reply was logged with.
const COPIES = BEFORE.map(({ role, content }): LaneLine => ({ role, content }))
const SUMMARY = [...COPIES, user('Sum it up.'), says('Summary 1.')]

describe('a lane that was compacted', () => {
  test('whatever its calls are named, in the run and in the recording', async () => {
    const { ask, told } = start({ parent: TWICE })
    const messages = await follow(ask, 'parent', TWICE.slice(0, 7))
    const renamed = JSON.parse(JSON.stringify(messages).replaceAll('"b"', '"mine"'))
    const { content } = await ask('parent', renamed)
    assert.equal(content[0].id, 'c')
    assert.deepEqual(told, [])
  })

  test('beside the lane that sums it up, which begins with the same objects', async () => {
    const recorded = { parent: [], 'sub-1': TWICE, 'sub-1.summary-1': SUMMARY }
    const { ask, told } = start(recorded)
    // The run's names need not be those of the recording.
    const messages = await follow(ask, 'sub-4', BEFORE)
    const copy = [...messages]
    await follow(ask, 'sub-4.summary-1', SUMMARY.slice(5), copy)
    await follow(ask, 'sub-4', TWICE.slice(5), messages)
    assert.deepEqual(told, [])
  })

  test('its summary is no prompt, and must be the recorded one', async () => {
    assert.deepEqual(promptsOf(laneOf('parent', TWICE)), ['Find it.'])
    const { ask } = start({ parent: TWICE })
    const other = ONCE.map((line) =>
      'content' in line && line.content === 'Summary 1.' ? user('No.') : line,
    )
    await assert.rejects(follow(ask, 'parent', other), {
      message:
        /^parent left .* message 4: .*\nRecorded in logs\/x:\n {2}parent: Find it\./,
    })
  })

  test('elsewhere than in the recording: both places are named', async () => {
    const { ask } = start({ parent: TWICE })
    const messages = await follow(ask, 'parent', BEFORE)
    await assert.rejects(ask('parent', messages), {
      message:
        /^parent left the recording at its message 5: next it answers 4 other messages\n/,
    })
  })

  test('a result that differs is told by its place in the history', async () => {
    const { ask, told } = start({ parent: TWICE })
    await follow(ask, 'parent', TWICE.with(4, sees('b', 'It is gone.')))
    assert.deepEqual(told, [
      'from parent 4 on the model answers the recording, not your edit',
    ])
  })
})

describe('a recorded lane', () => {
  const failed = { event: 'api_error', status: 529, error: { type: 'overloaded_error' } }

  test('is for one lane of the run, also while it is asked again', async () => {
    const lines = [user('Go.'), failed, says('1.')]
    const { ask } = start({ 'sub-1': lines, 'sub-2': [user('Go.'), says('2.')] })
    const [one, two] = [[lines[0] as MessageParam], [user('Go.') as MessageParam]]
    assert.equal((await ask('sub-1', one)).status, 529)
    assert.equal((await ask('sub-2', two)).content[0].text, '2.')
    assert.equal((await ask('sub-1', one)).content[0].text, '1.')
  })
})
