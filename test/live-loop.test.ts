/** Steps 03 and 04 live: what parent and child send, what comes back, what a list does. */
import assert from 'node:assert/strict'
import { test } from 'node:test'
import {
  about,
  bash,
  byPrompt,
  calls,
  type Json,
  laneOf,
  read,
  resultsIn,
  runLive,
  task,
  text,
} from './live.ts'

const look = read('nothing.txt')
const namesIn = ({ tools }: Json) => tools.map(({ name }: Json) => name)
const FOUR = ['bash', 'read_file', 'write_file', 'edit_file']

/** Each request begins with all that the one before it held, byte for byte. */
function assertOnlyGrows(requests: Json[]) {
  for (const [i, { messages }] of requests.slice(1).entries()) {
    const before = requests[i].messages
    const kept = messages.slice(0, before.length)
    assert.equal(JSON.stringify(kept), JSON.stringify(before), `request ${i + 2}`)
    assert(messages.length > before.length)
  }
}

test('04: a child has an array of its own, and its last text is what comes back', async (t) => {
  const so = text('So.')
  const quoted = '{"name": "bash", "arguments": {"command": "ls"}}'
  // biome-ignore format: a table
  const scripts = {
      'one task': [calls(task('child 1', { description: 'Look' })), so],
      'child 1': [calls({ text: 'I look.' }, look), text('Report 1.')],
      'two tasks': [calls(task('child 2'), task('child 3')), so],
      'child 2': [calls(look), text('Report 2.')],
      'child 3': [text('Report 3.')],
      'a quote': [calls(task('child 4')), so],
      'child 4': [text(quoted)],
    }
  const prompts = Object.keys(scripts).filter((name) => !name.startsWith('child'))
  const run = await runLive(t, byPrompt(scripts), {
    step: '04-subagent',
    stdin: `${prompts.join('\n')}\n`,
  })
  assert.deepEqual([run.code, run.stderr], [0, ''])
  const asked = (prompt: string) => about(run.requests, prompt)
  const outputs = (prompt: string) =>
    resultsIn(asked(prompt)[1]).map(({ content, is_error }) => [content, is_error])
  const parents = prompts.flatMap(asked)

  await t.test('the first request: its system, its tools, one message', () => {
    const [child] = asked('child 1')
    const [parent] = asked('one task')
    assert.match(child.system, /^You are a subagent in .*04-subagent\.\n/)
    assert.match(parent.system, /^You are a coding agent in .*04-subagent\.\n/)
    assert.deepEqual(child.messages, [{ role: 'user', content: 'child 1' }])
    assert.deepEqual(namesIn(parent), [...FOUR, 'task'])
    assert.deepEqual(child.tools, parent.tools.slice(0, 4))
    const { system, max_turns } = laneOf(run, 'sub-1').header
    assert.equal(system, child.system.replace(/ in .*\.\n/, ' in <workdir>.\n'))
    assert.equal(max_turns, 30)
  })

  await t.test('the parent gets the report, and nothing of the work', () => {
    assert.deepEqual(outputs('one task'), [['Report 1.', undefined]])
    assertOnlyGrows(parents)
    const work = /"name":"read_file","input"|nothing\.txt/
    assert.doesNotMatch(JSON.stringify(parents), work)
    assert.doesNotMatch(JSON.stringify(laneOf(run).messages), work)
    assert.equal(laneOf(run, 'sub-1').messages.length, 4)
  })

  await t.test('two tasks in one reply: their results in order, in one message', () => {
    const reports = ['Report 2.', 'Report 3.'].map((report) => [report, undefined])
    assert.deepEqual(outputs('two tasks'), reports)
    assert.equal(laneOf(run, 'sub-2').messages[0].content, 'child 2')
    assert.equal(laneOf(run, 'sub-3').messages[0].content, 'child 3')
  })

  await t.test('a report may quote a call', () => {
    const [[report, is_error]] = outputs('a quote')
    assert(report.startsWith(quoted))
    assert.equal(is_error, undefined)
  })
})

test('03: the list is checked, and its reminder changes no past', async (t) => {
  const items = (n: number, status = 'pending') =>
    Array.from({ length: n }, (_, i) => ({ text: `item ${i + 1}`, status }))
  const todo = (value: unknown) => calls({ name: 'todo', input: { items: value } })
  const other = calls(bash('echo on'))
  const two = JSON.stringify([...items(1, 'completed'), ...items(1, 'in_progress')])
  // biome-ignore format: a table
  const lists: [name: string, items: unknown, said: string, is_error?: true][] = [
      ['JSON text', two, '[x] item 1\n[>] item 1'],
      ['no JSON', 'process.exit(3)', 'todo.items must be an array, not "process.exit(3)"', true],
      ['too many', items(21), 'todo.items must have at most 20 items, not 21', true],
      ['two at once', items(2, 'in_progress'), 'Only one item can be in_progress at a time.', true],
      ['no status', [{ text: 'item' }], 'todo.items[0].status is missing', true],
    ]
  const scripts = {
    ...Object.fromEntries(lists.map(([name, list]) => [name, [todo(list), text('So.')]])),
    rounds: [other, other, todo(items(20)), ...Array(7).fill(other), text('So.')],
  }
  const stdin = `${Object.keys(scripts).join('\n')}\n`
  const run = await runLive(t, byPrompt(scripts), { step: '03-todo-write', stdin })
  assert.deepEqual([run.code, run.stderr], [0, ''])
  assertOnlyGrows(run.requests)
  for (const [name, , said, is_error] of lists) {
    const [result] = resultsIn(about(run.requests, name)[1])
    assert(result.content.startsWith(said), result.content)
    assert.equal(result.is_error, is_error)
  }
  assert.match(run.stdout, /\n\[x\] item 1\n\[>\] item 1\n/)

  const ends = about(run.requests, 'rounds').map(
    ({ messages }) => messages.at(-1).content,
  )
  const reminded = ends.flatMap((content, i) => (content.length === 2 ? [i] : []))
  assert.deepEqual(reminded, [6, 9], 'three and six rounds after the list')
  for (const i of reminded) {
    assert.equal(ends[i][0].type, 'tool_result')
    assert.match(ends[i][1].text, /^Reminder: /)
  }
})
