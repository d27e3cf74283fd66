/** Steps 03 and 04 live: what parent and child send, what comes back, what a list does. */
import assert from 'node:assert/strict'
import { existsSync } from 'node:fs'
import { join } from 'node:path'
import { describe, test } from 'node:test'
import {
  about,
  assertReplays,
  byPrompt,
  laneOf,
  logFolder,
  resultsIn,
  runLive,
} from './live.ts'
import { calls, fail, type Json, reply, text } from './server.ts'

const task = (prompt: unknown, fields: Json = {}) => ({
  name: 'task',
  input: { prompt, ...fields },
})
const look = { name: 'read_file', input: { path: 'nothing.txt' } }
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

describe('step 04', { concurrency: 4 }, () => {
  test('a child has an array of its own, and its last text is what comes back', async (t) => {
    const done = () => text('So.')
    const scripts = {
      'one task': [calls(task('child 1', { description: 'Look' })), done()],
      'child 1': [calls({ text: 'I look.' }, look), text('Report 1.')],
      'two tasks': [calls(task('child 2'), task('child 3')), done()],
      'child 2': [calls(look), text('Report 2.')],
      'child 3': [text('Report 3.')],
      'null description': [calls(task('child 4', { description: null })), done()],
      'child 4': [calls(task('child of a child')), text('Alone.')],
      'no prompt': [
        calls({ name: 'task', input: { description: 'Look' } }, task(5)),
        done(),
      ],
      'empty report': [calls(task('child 5')), done()],
      'child 5': [calls(look), reply([])],
      refusal: [calls(task('child 6')), done()],
      'child 6': [reply([], { stop_reason: 'refusal' })],
      cut: [calls(task('child 7')), done()],
      'child 7': [text('Half a rep', { stop_reason: 'max_tokens' })],
      crash: [calls(task('child 8')), done()],
      'child 8': [fail(401, 'authentication_error', 'invalid x-api-key')],
      mixed: [
        calls(
          { name: 'write_file', input: { path: '../out.txt', content: '' } },
          { name: 'bash', input: { command: 'echo on' } },
        ),
        done(),
      ],
      last: [text('Goodbye.')],
    }
    const prompts = Object.keys(scripts).filter((name) => !name.startsWith('child'))
    const run = await runLive(t, byPrompt(scripts), {
      step: '04-subagent',
      stdin: `${prompts.join('\n')}\n`,
    })
    assert.equal(run.stderr, '')
    assert.equal(run.code, 0)
    const asked = (prompt: string) => about(run.requests, prompt)
    const outputs = (prompt: string) =>
      resultsIn(asked(prompt)[1]).map(({ content, is_error }) => [
        content.trim(),
        is_error,
      ])
    const parents = prompts.flatMap(asked)

    await t.test('the first request: its system, its tools, one message', () => {
      const [child] = asked('child 1')
      const [parent] = asked('one task')
      assert.match(child.system, /^You are a subagent in .*04-subagent\.\n/)
      assert.match(parent.system, /^You are a coding agent in .*04-subagent\.\n/)
      assert.deepEqual(child.messages, [{ role: 'user', content: 'child 1' }])
      assert.deepEqual(namesIn(child), FOUR)
      assert.deepEqual(namesIn(parent), [...FOUR, 'task'])
      assert.deepEqual(child.tools, parent.tools.slice(0, 4))
      assert.equal(
        laneOf(run, 'sub-1').header.system,
        child.system.replace(/ in .*\.\n/, ' in <workdir>.\n'),
      )
      assert.equal(laneOf(run, 'sub-1').header.max_turns, 30)
    })

    await t.test('the parent gets the report, and nothing of the work', () => {
      assert.deepEqual(outputs('one task'), [['Report 1.', undefined]])
      assertOnlyGrows(parents)
      const held = JSON.stringify(parents)
      assert.doesNotMatch(held, /"name":"read_file","input"|nothing\.txt|I look/)
      assert.doesNotMatch(JSON.stringify(laneOf(run).lines), /nothing\.txt|I look/)
      assert.equal(laneOf(run, 'sub-1').messages.length, 4)
    })

    await t.test('two tasks in one reply: their results in order, in one message', () => {
      assert.deepEqual(outputs('two tasks'), [
        ['Report 2.', undefined],
        ['Report 3.', undefined],
      ])
      assert.equal(laneOf(run, 'sub-2').messages[0].content, 'child 2')
      assert.equal(laneOf(run, 'sub-3').messages[0].content, 'child 3')
    })

    await t.test('a child that asks for task by name does not get it', () => {
      assert.deepEqual(
        resultsIn(asked('child 4')[1])[0].content,
        `No tool task, only ${FOUR.join(', ')}.`,
      )
      assert.deepEqual(outputs('null description'), [['Alone.', undefined]])
      assert.equal(asked('child of a child').length, 0)
    })

    await t.test(
      'a task without prompt: an error that names it, and nothing starts',
      () => {
        assert.deepEqual(outputs('no prompt'), [
          ['task.prompt is missing: it is required, a string', true],
          ['task.prompt must be a string, not 5', true],
        ])
      },
    )

    await t.test(
      'an empty, refused, cut or crashed report is an error, and all goes on',
      () => {
        const [[empty, e1]] = outputs('empty report')
        const [[refused, e2]] = outputs('refusal')
        const [[cut, e3]] = outputs('cut')
        const [[crashed, e4]] = outputs('crash')
        assert.match(empty, /the reply was empty/)
        assert.match(refused, /the model refused to answer/)
        assert.match(cut, /stopped by max_tokens, not done\. Last words: Half a rep/)
        assert.match(crashed, /401 .*invalid x-api-key/)
        assert.deepEqual([e1, e2, e3, e4], [true, true, true, true])
        assert.equal(laneOf(run, 'sub-8').events[0].event, 'api_error')
      },
    )

    await t.test('one of several calls fails: each has its result, in order', () => {
      const [[outside, e1], [said, e2]] = outputs('mixed')
      assert.match(outside, /outside/)
      assert.deepEqual([said, e1, e2], ['on', true, undefined])
      assert(!existsSync(join(run.root, '.workspace', 'out.txt')))
    })

    await t.test('no lane but those of the children there were', () => {
      assert.equal(laneOf(run, 'sub-8').messages[0].content, 'child 8')
      assert(!existsSync(join(run.root, logFolder(run), 'sub-9.log')))
    })

    await t.test('the run can be replayed', () => assertReplays('04-subagent', run))
  })

  test('a task with a blank prompt starts nothing', async (t) => {
    const answers = [calls(task(' '), task('')), text('So.')]
    const run = await runLive(t, answers, { step: '04-subagent', args: ['Go on.'] })
    assert.equal(run.requests.length, 2)
    const told = resultsIn(run.requests[1])
    for (const { content, is_error } of told) {
      assert.match(content, /task\.prompt/)
      assert.equal(is_error, true)
    }
  })

  test('a child that never stops is sent 30 requests, and is not taken for done', async (t) => {
    const again = calls({ text: 'Once more.' }, look)
    const scripts = {
      'Go on.': [calls(task('round and round')), text('It did not end.')],
      'round and round': Array(40).fill(again),
    }
    const run = await runLive(t, byPrompt(scripts), {
      step: '04-subagent',
      args: ['Go on.'],
    })
    assert.equal(run.code, 0)
    const child = about(run.requests, 'round and round')
    assert.equal(child.length, 30)
    assertOnlyGrows(child)
    assert.deepEqual(resultsIn(run.requests[31]), [
      {
        type: 'tool_result',
        tool_use_id: 'toolu_0_0',
        content:
          'The subagent was stopped after 30 turns, not done. Last words: Once more.',
        is_error: true,
      },
    ])
    assert.equal(laneOf(run, 'sub-1').messages.length, 61)
  })
})

describe('step 03', () => {
  test('the list is checked, and its reminder changes no past', async (t) => {
    const items = (n: number, status = 'pending') =>
      Array.from({ length: n }, (_, i) => ({ text: `item ${i + 1}`, status }))
    const todo = (value: unknown) => calls({ name: 'todo', input: { items: value } })
    const bash = calls({ name: 'bash', input: { command: 'echo on' } })
    const done = () => text('So.')
    const scripts = {
      'JSON text': [
        todo(JSON.stringify([...items(1, 'completed'), ...items(1, 'in_progress')])),
        done(),
      ],
      'no JSON': [todo('process.exit(3)'), done()],
      'too many': [todo(items(21)), done()],
      'two at once': [todo(items(2, 'in_progress')), done()],
      'no status': [todo([{ text: 'item' }]), done()],
      rounds: [bash, bash, todo(items(20)), ...Array(7).fill(bash), done()],
    }
    const stdin = `${Object.keys(scripts).join('\n')}\n`
    const run = await runLive(t, byPrompt(scripts), { step: '03-todo-write', stdin })
    assert.equal(run.stderr, '')
    assert.equal(run.code, 0)
    assertOnlyGrows(run.requests)
    const said = (prompt: string) => {
      const [{ content, is_error }] = resultsIn(about(run.requests, prompt)[1])
      return [content, is_error]
    }
    assert.deepEqual(said('JSON text'), ['[x] item 1\n[>] item 1', undefined])
    assert.match(run.stdout, /\n\[x\] item 1\n\[>\] item 1\n/)
    assert.deepEqual(said('no JSON'), [
      'todo.items must be an array, not "process.exit(3)"',
      true,
    ])
    assert.deepEqual(said('too many'), [
      'todo.items must have at most 20 items, not 21',
      true,
    ])
    assert.deepEqual(said('two at once'), [
      'Only one item can be in_progress at a time.',
      true,
    ])
    assert.match(said('no status')[0], /^todo\.items\[0\]\.status is missing/)

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
})
