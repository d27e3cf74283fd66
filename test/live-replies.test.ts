/** Replies that bend the protocol, and the ways in which a prompt comes in. */
import assert from 'node:assert/strict'
import { existsSync } from 'node:fs'
import { join } from 'node:path'
import { describe, test } from 'node:test'
import {
  about,
  assertReplays,
  byPrompt,
  envFile,
  laneOf,
  logFolder,
  resultsIn,
  runLive,
  serve,
} from './live.ts'
import {
  calls,
  type Json,
  makeRoot,
  raw,
  reply,
  runStep,
  startStep,
  text,
} from './server.ts'

const bash = (command: string, fields: Json = {}) => ({
  name: 'bash',
  input: { command },
  ...fields,
})

describe('replies', { concurrency: 4 }, () => {
  const THINKING = [
    { type: 'thinking', thinking: 'Hm: "é" \\ \u2028', signature: 'EqQB+/==' },
    { type: 'redacted_thinking', data: 'EmwKAhgB' },
    { type: 'text', text: 'I look.', citations: null },
  ]
  const SEARCH = {
    type: 'server_tool_use',
    id: 'srvtoolu_1',
    name: 'web_search',
    input: {},
  }
  const FOUND = { type: 'web_search_tool_result', tool_use_id: 'srvtoolu_1', content: [] }

  test('those that bend the protocol are tidied, or named', async (t) => {
    const scripts = {
      null: [raw(200, { role: 'assistant', content: null, stop_reason: 'end_turn' })],
      string: [raw(200, { role: 'assistant', content: 'Just text.' })],
      'end_turn beside a call': [
        calls(bash('echo run'), { stop_reason: 'end_turn' }),
        text('So.'),
      ],
      'tool_use without a call': [text('No call.', { stop_reason: 'tool_use' })],
      refusal: [reply([], { stop_reason: 'refusal' })],
      pause: [
        reply([SEARCH], { stop_reason: 'pause_turn' }),
        reply([FOUND, { type: 'text', text: 'Found.' }]),
      ],
      'pause, then refused': [
        reply([{ type: 'text', text: 'Half of it.' }, SEARCH], {
          stop_reason: 'pause_turn',
        }),
        reply([], { stop_reason: 'refusal' }),
      ],
      thinking: [
        reply([...THINKING, { type: 'tool_use', ...bash('echo on') }]),
        text('So.'),
      ],
      'json input': [
        calls({ name: 'bash', input: '{"command": "echo json"}' }),
        text('So.'),
      ],
      'no object': [
        calls(
          { name: 'bash', input: 'echo' },
          { name: 'bash', input: [1] },
          { name: 'bash', input: null },
        ),
        text('So.'),
      ],
      'same ids': [
        calls(bash('echo a', { id: 'same' }), bash('echo b', { id: 'same' })),
        calls(bash('echo c', { id: 'same' })),
        text('So.'),
      ],
      'no ids': [
        calls(bash('echo a', { id: '' }), bash('echo b', { id: null })),
        text('So.'),
      ],
      'no tool': [calls({ name: 'fly', input: { to: 'Mars' } }), text('So.')],
      'cut call': [
        calls(
          bash('echo x > cut.txt'),
          { name: 'write_file', input: { path: 'cut.txt' } },
          { stop_reason: 'max_tokens' },
        ),
        text('So.'),
      ],
      'cut text': [text('Half a sen', { stop_reason: 'max_tokens' })],
      'cut to nothing': [reply([], { stop_reason: 'max_tokens' })],
      'written call': [
        text('<tool_call>{"name": "bash", "arguments": {"command": "ls"}}</tool_call>'),
      ],
      empty: [reply([])],
      blank: [reply([{ type: 'text', text: ' \n' }])],
      'blank beside a call': [
        reply([
          { type: 'text', text: '' },
          { type: 'tool_use', ...bash('echo on') },
        ]),
        text('So.'),
      ],
      'text/plain': [
        raw(
          200,
          { role: 'assistant', content: [{ type: 'text', text: 'Plain.' }] },
          { 'content-type': 'text/plain' },
        ),
      ],
      last: [text('Goodbye.')],
    }
    const stdin = `${Object.keys(scripts).join('\n')}\n`
    const run = await runLive(t, byPrompt(scripts), { stdin })
    const lane = laneOf(run)
    const asked = (prompt: string) => about(run.requests, prompt)
    /** What was logged between this prompt and the next. */
    const logged = (prompt: string) => {
      const start = lane.lines.findIndex(({ content }) => content === prompt)
      const next = lane.lines.findIndex(
        ({ role, content }, i) =>
          i > start && role === 'user' && typeof content === 'string',
      )
      return lane.lines.slice(start + 1, next < 0 ? undefined : next)
    }
    const outputs = (request: Json) =>
      resultsIn(request).map(({ content, is_error }) => [content.trim(), is_error])

    const at = ` (test-model at ${run.server.url})`
    const named: Record<string, string> = {
      null: `the reply was empty (stop_reason end_turn)${at}`,
      refusal: `the model refused to answer (stop_reason refusal)${at}`,
      'pause, then refused': `the model refused to answer (stop_reason refusal): Half of it.${at}`,
      'cut text': 'The answer ended early: max_tokens.',
      'cut to nothing': `the reply was cut by max_tokens before any text${at}`,
      'written call': `the model wrote its call of bash as text: <tool_call>{"name": "bash", "arguments": {"command": "ls"}}</tool_call>${at}`,
      empty: `the reply was empty (stop_reason end_turn)${at}`,
      blank: `the reply was empty (stop_reason end_turn)${at}`,
    }
    await t.test('what cannot be tidied is one line each, and no message', () => {
      assert.deepEqual(run.stderr.trim().split('\n'), Object.values(named))
      assert.equal(run.code, 1)
      for (const prompt of Object.keys(named).filter((name) => name !== 'cut text')) {
        const [line, ...more] = logged(prompt)
        assert.equal(line.event, 'bad_reply', prompt)
        assert.equal(line.message + at, named[prompt])
        assert.equal(more.length, 0)
      }
      const contents = (prompt: string) => logged(prompt).map(({ content }) => content)
      assert.deepEqual(contents('empty'), [undefined])
      assert.match(contents('written call')[0][0].text, /^<tool_call>/)
      const paused = [{ type: 'text', text: 'Half of it.' }, SEARCH]
      assert.deepEqual(contents('pause, then refused'), [paused])
    })

    await t.test('content that is a string is an answer', () => {
      assert.match(run.stdout, /\nJust text\.\n/)
      const [line] = logged('string')
      assert.deepEqual(line.content, [{ type: 'text', text: 'Just text.' }])
      assert.match(run.stdout, /\nPlain\.\n/)
    })

    await t.test('the blocks decide, and stop_reason is made to agree', () => {
      assert.deepEqual(outputs(asked('end_turn beside a call')[1]), [['run', undefined]])
      assert.equal(logged('end_turn beside a call')[0].stop_reason, 'tool_use')
      assert.equal(asked('tool_use without a call').length, 1)
      assert.equal(logged('tool_use without a call')[0].stop_reason, 'end_turn')
      assert.deepEqual(outputs(asked('blank beside a call')[1]), [['on', undefined]])
    })

    await t.test('a paused turn goes on, and is one reply to the step', () => {
      assert.deepEqual(asked('pause')[1].messages.at(-1), {
        role: 'assistant',
        content: [SEARCH],
      })
      const [line, ...more] = logged('pause')
      assert.deepEqual(line.content, [SEARCH, FOUND, { type: 'text', text: 'Found.' }])
      assert.equal(line.stop_reason, 'end_turn')
      assert.equal(more.length, 0)
    })

    await t.test('thinking goes back as it came, byte for byte', () => {
      const { content } = asked('thinking')[1].messages.at(-2)
      assert.equal(JSON.stringify(content.slice(0, 3)), JSON.stringify(THINKING))
      assert.deepEqual(logged('thinking')[0].content.slice(0, 3), THINKING)
    })

    await t.test('an input is an object, or an error that says so', () => {
      assert.deepEqual(outputs(asked('json input')[1]), [['json', undefined]])
      const refused = outputs(asked('no object')[1])
      assert.equal(refused.length, 3)
      for (const [said, is_error] of refused) {
        assert.match(said, /bash\.command is missing: it is required, a string/)
        assert.equal(is_error, true)
      }
    })

    await t.test('ids are there and unique in the conversation', () => {
      const [, second, third] = asked('same ids')
      assert.deepEqual(outputs(second), [
        ['a', undefined],
        ['b', undefined],
      ])
      assert.deepEqual(outputs(third), [['c', undefined]])
      assert.deepEqual(outputs(asked('no ids')[1]), [
        ['a', undefined],
        ['b', undefined],
      ])
      const { messages }: Json = run.requests.at(-1) as Json
      const ids = messages.flatMap(({ role, content }: Json) =>
        role === 'assistant'
          ? content.flatMap(({ type, id }: Json) => (type === 'tool_use' ? [id] : []))
          : [],
      )
      assert.equal(ids.length, 15)
      assert.equal(new Set(ids).size, ids.length)
    })

    await t.test('a tool that is not there: an error that names those there are', () => {
      assert.deepEqual(outputs(asked('no tool')[1]), [
        ['No tool fly, only bash, read_file, write_file, edit_file.', true],
      ])
    })

    await t.test('a reply cut by max_tokens runs none of its calls', () => {
      const results = outputs(asked('cut call')[1])
      assert.equal(results.length, 2)
      for (const [said, is_error] of results) {
        assert.match(said, /^Not run: your reply was cut/)
        assert.equal(is_error, true)
      }
      assert(!existsSync(join(run.root, '.workspace', '02-tool-use', 'cut.txt')))
      assert.equal(logged('cut call')[0].stop_reason, 'max_tokens')
      assert.match(run.stdout, /\nHalf a sen\n/)
      assert.equal(logged('cut text')[0].content[0].text, 'Half a sen')
    })

    await t.test('the run can be replayed', () => assertReplays('02-tool-use', run))
  })
})

describe('prompts', { concurrency: 4 }, () => {
  test('words behind the command are the prompt, and nothing else is read', async (t) => {
    const args = ['Say', 'it', 'twice.']
    const run = await runLive(t, [text('It. It.')], { args, stdin: 'Something else.\n' })
    assert.deepEqual(run.requests[0].messages, [
      { role: 'user', content: 'Say it twice.' },
    ])
    assert.equal(run.requests.length, 1)
    assert.equal(run.code, 0)
  })

  test('no words and no lines: the step has a prompt of its own', async (t) => {
    const run = await runLive(t, [text('There it is.')])
    assert.match(run.requests[0].messages[0].content, /^Create hello\.mjs: /)
    assert.equal(run.code, 0)
  })

  test('piped lines are one conversation, until q; the pipe may stay open', async (t) => {
    const server = await serve(t, [text('One.'), text('Two.'), text('Three.')])
    const dotenv = envFile(server.url)
    const step = startStep({
      step: '02-tool-use',
      dotenv,
      root: makeRoot(t),
      stdin: null,
    })
    step.child.stdin.write('\ufefffirst\r\n\r\n  \r\nsecond ü\r\nthird\r\nq\r\nnever\r\n')
    const run = await step.result
    assert.deepEqual(server.refused, [])
    assert.deepEqual(
      server.requests.at(-1)?.body.messages,
      ['first', 'One.', 'second ü', 'Two.', 'third'].map((said, i) =>
        i % 2
          ? { role: 'assistant', content: [{ type: 'text', text: said }] }
          : { role: 'user', content: said },
      ),
    )
    assert.equal(server.requests.length, 3)
    assert.equal(run.stderr, '')
    assert.equal(run.code, 0)
    assert.match(
      run.stdout,
      /\nparent: 6 messages, .*\nlog: logs\/live\/02-tool-use-\S+\n$/,
    )
  })

  test('exit leaves, and lines without words do nothing', async (t) => {
    const run = await runLive(t, [], { stdin: '\n \nexit\nnever\n' })
    assert.equal(run.requests.length, 0)
    assert.equal(run.code, 0)
    assert.equal(run.stderr, '')
  })

  test('a line that is not UTF-8 is refused in one line', async (t) => {
    const server = await serve(t, [text('One.')])
    const dotenv = envFile(server.url)
    const step = startStep({
      step: '02-tool-use',
      dotenv,
      root: makeRoot(t),
      stdin: null,
    })
    step.child.stdin.end(Buffer.from('first\ncaf\xe9\n', 'latin1'))
    const run = await step.result
    assert.match(run.stderr, /^Standard input is not UTF-8 text: .*\n$/)
    assert.equal(run.code, 1)
    assert.equal(server.requests.length, 1)
    assert.match(run.stdout, /\nOne\.\n[\s\S]*\nlog: \S+\n$/)
    assert.equal(laneOf(run).messages.length, 2)
  })

  test('offline, a pipe that stays open and silent does not hold the run', async (t) => {
    const step = startStep({ step: '01-agent-loop', root: makeRoot(t), stdin: null })
    const run = await step.result
    assert.equal(run.code, 0)
    assert.equal(logFolder(run), 'logs/01-agent-loop')
    assert.equal(
      (await runStep({ step: '01-agent-loop', root: run.root, stdin: 'q\n' })).code,
      0,
    )
  })
})
