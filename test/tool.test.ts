/** What holds around every call: its input, its answer, and calls written as text. */
import assert from 'node:assert/strict'
import { describe, test } from 'node:test'
import {
  attempt,
  checkInput,
  headAndTail,
  noSuch,
  type Tool,
} from '../steps/support/tools/tool.ts'
import { noteOnCalls, writtenCall } from '../steps/support/tools/written.ts'

describe('checkInput', () => {
  const properties = {
    path: { type: 'string' },
    limit: { type: 'integer', minimum: 1, maximum: 9999 },
    share: { type: 'number' },
    worktree: { type: 'boolean' },
    prompt: { type: 'string', minLength: 1 },
    status: { type: 'string', enum: ['open', 'done'] },
    place: { type: 'object', properties: { x: { type: 'integer' } }, required: ['x'] },
    items: { type: 'array', maxItems: 2, items: { type: 'string' } },
    any: {},
  }
  const schema = { type: 'object' as const, properties, required: ['path'] }
  const tool: Tool = { name: 't', description: '', input_schema: schema, run: () => '' }
  const inputOf = (fields: object) => {
    const { path, ...rest } = checkInput(tool, { path: 'a', ...fields })
    assert.equal(path, 'a')
    return rest
  }

  // biome-ignore format: a table
  const read: [given: object, read: object][] = [
    [{}, {}],
    [{ limit: 10 }, { limit: 10 }],
    [{ limit: '10' }, { limit: 10 }],
    [{ limit: null, worktree: undefined }, {}],
    [{ share: '0.5' }, { share: 0.5 }],
    [{ worktree: 'true' }, { worktree: true }],
    [{ worktree: 'False' }, { worktree: false }],
    [{ items: '["a","b"]' }, { items: ['a', 'b'] }],
    [{ place: '{"x":"1"}' }, { place: { x: 1 } }],
    [{ prompt: '10', status: 'done' }, { prompt: '10', status: 'done' }],
    [{ any: '10', unknown: '10' }, { any: '10', unknown: '10' }],
  ]
  for (const [given, wanted] of read) {
    test(`reads ${JSON.stringify(given)}`, () => assert.deepEqual(inputOf(given), wanted))
  }

  // biome-ignore format: a table
  const wrong: [given: object, message: string][] = [
    [{ path: null }, 't.path is missing: it is required, a string'],
    [{ path: 10 }, 't.path must be a string, not 10'],
    [{ limit: 'ten' }, 't.limit must be an integer, not "ten"'],
    [{ limit: '1.5' }, 't.limit must be an integer, not "1.5"'],
    [{ limit: '9007199254740993' }, 't.limit must be an integer, not "9007199254740993"'],
    [{ limit: '0' }, 't.limit must be at least 1, not "0"'],
    [{ limit: 10_000 }, 't.limit must be at most 9999, not 10000'],
    [{ share: 'NaN' }, 't.share must be a number, not "NaN"'],
    [{ worktree: 'yes' }, 't.worktree must be a boolean, not "yes"'],
    [{ prompt: ' \n' }, 't.prompt must be text, not blank, not " \\n"'],
    [{ status: 'new' }, 't.status must be one of open, done, not "new"'],
    [{ place: [] }, 't.place must be an object, not []'],
    [{ place: {} }, 't.place.x is missing: it is required, an integer'],
    [{ items: 'a, b' }, 't.items must be an array, not "a, b"'],
    [{ items: ['a', 1] }, 't.items[1] must be a string, not 1'],
    [{ items: ['a', 'b', 'c'] }, 't.items must have at most 2 items, not 3'],
  ]
  for (const [given, message] of wrong) {
    test(`refuses ${JSON.stringify(given)}`, () =>
      assert.throws(() => inputOf(given), { message }))
  }

  test('the schema that is offered stays as it is, and so does the input', () => {
    const before = structuredClone(schema)
    const given = { path: 'a', limit: '10', items: '[]' }
    checkInput(tool, given)
    assert.deepEqual(schema, before)
    assert.deepEqual(given, { path: 'a', limit: '10', items: '[]' })
    assert.throws(() => checkInput(tool, 'a'), {
      message: 't must be an object, not "a"',
    })
  })
})

test('noSuch is right for none, one and many', () => {
  const said = (...names: string[]) =>
    noSuch('agent', 'x', new Set(names.map((name) => ({ name }))))
  assert.equal(said(), 'No agent x: there is none.')
  assert.equal(said('a'), 'No agent x, only a.')
  assert.equal(said('a', 'b', 'c'), 'No agent x, only a, b, c.')
})

describe('attempt', () => {
  const fail = (error: unknown) => () => Promise.reject(error)
  type Run = () => string | Promise<string>
  // biome-ignore format: a table
  const answers: [name: string, run: Run, content: string, is_error?: true][] = [
    ['text', () => 'a\n', 'a\n'],
    ['a promise', async () => 'a', 'a'],
    ['nothing', () => '', '(no output)'],
    ['blanks', () => ' \n', '(no output)'],
    ['half a character', () => 'a\ud83d', 'a\ufffd'],
    ['an error', fail(new Error(' wrong ')), 'wrong', true],
    ['an error with half a character', fail(new Error('\ude00a')), '\ufffda', true],
    ['an error without words', fail(new Error(' ')), 'The tool failed.', true],
    ['something else thrown', fail('so'), 'so', true],
  ]
  for (const [name, run, content, is_error] of answers) {
    test(name, async () => {
      const expected = is_error ? { content, is_error } : { content }
      assert.deepEqual(await attempt(run), expected)
    })
  }
})

test('headAndTail cuts between characters, and counts what is left out', () => {
  for (const character of ['a', 'é', '界', '🙂']) {
    for (const head of ['', 'x', 'xx', 'xxx']) {
      const whole = head + character.repeat(110)
      const cut = headAndTail(whole, 101)
      const [, first, left, last] =
        /^(.*)\n\[(\d+) bytes left out\]\n(.*)$/.exec(cut) ?? assert.fail(cut)
      assert.ok(whole.startsWith(first) && whole.endsWith(last), cut)
      const kept = Buffer.byteLength(first + last)
      assert.ok(kept <= 101 && kept > 92, `${kept}`)
      assert.equal(Number(left) + kept, Buffer.byteLength(whole))
    }
  }
  assert.equal(headAndTail('x'.repeat(100), 100), 'x'.repeat(100))
})

describe('a call written as text', () => {
  const tools = ['bash', 'read_file', 'task'].map((name) => ({ name }))
  const BASH = '{"name": "bash", "arguments": {"command": "ls"}}'

  const calls = [
    BASH,
    `I will run the test.\n\n${BASH}`,
    `${BASH}\n\nI have now run the command.`,
    `\`\`\`json\n${BASH}\n\`\`\`\nI have now run the command. All is well.`,
    '{\n  "name": "bash",\n  "parameters": {\n    "command": "ls"\n  }\n}',
    '{"arguments": {"command": "ls"}, "name": "bash"}',
    '{"name": "bash", "arguments": "{\\"command\\": \\"ls\\"}"}',
    '{"type": "tool_use", "id": "toolu_1", "name": "bash", "input": {"command": "ls"}}',
    '{"name": "bash", "id": "toolu_1", "index": 0, "input": {"command": "ls"}}',
    `{"tool_calls": [{"id": "call_1", "type": "function", "function": ${BASH}}]}`,
    '{"tool": "bash", "input": {"command": "ls"}}',
    '{"name": "functions.bash", "arguments": {"command": "ls"}}',
    "{'name': 'bash', 'arguments': {'command': 'ls'}}",
    '{"name": "bash", "arguments": {"command": "echo "broken""',
    `<tool_call>\n${BASH}\n</tool_call>\nI have now run the command.`,
    '<tool_call>bash\n<arg_key>command</arg_key><arg_value>ls</arg_value></tool_call>',
    '<tool_call>\n<function=bash>\n<parameter=command>ls</parameter>',
    'So: <function=bash{"command": "ls"}</function> I have now run it.',
    '<function_calls>\n<invoke name="bash">\n<parameter name="command">ls</parameter>',
    '<｜DSML｜function_calls><｜DSML｜invoke name="bash">',
    '<invoke><tool_name>bash</tool_name><parameters><command>ls</command>',
    `[TOOL_CALLS] [${BASH}]`,
    '[TOOL_CALLS]bash{"command": "ls"}',
    '[TOOL_CALLS]bash[ARGS]{"command": "ls"}',
    `<|python_tag|>${BASH}`,
    '<|python_tag|>bash.call(command="ls")',
    '<|channel|>commentary to=functions.bash <|constrain|>json<|message|>{}',
    '<|start|>assistant to=functions.bash<|channel|>commentary<|message|>{}',
    '<|tool_calls_section_begin|><|tool_call_begin|>functions.bash:0<|tool_call_end|>',
    '<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>bash\n```json',
    '<｜tool▁call▁begin｜>bash<｜tool▁sep｜>{"command": "ls"}',
    '<|tool_call>call:bash{command:<|"|>ls<|"|>}<tool_call|>',
    // Such an answer may be right: so it is noted, and nothing more.
    `A call looks like this:\n\n\`\`\`json\n${BASH}\n\`\`\``,
  ]
  for (const text of calls) {
    test(`seen: ${text}`, () => assert.equal(writtenCall(text, tools), 'bash'))
  }

  const others = [
    '',
    'I ran bash, and then task: bash takes {"command": "ls"}.',
    'A <tool_call> marker shows up when the task is handed over as text.',
    '<tool_call>{"name": "browser", "arguments": {}}</tool_call>',
    '{"name": "bash-completion", "arguments": {"command": "ls"}}',
    '<function=bash_2>',
    '{"name": "bash", "description": "Runs a command."}',
    '{"name": "task", "input": "src", "version": "1.0.0"}',
    '[1, null, "bash"]',
    'cp --to=task a b',
    'import { bash } from "./tools.ts"; bash({ command: "ls" })',
  ]
  for (const text of others) {
    test(`not seen: ${text}`, () => assert.equal(writtenCall(text, tools), undefined))
  }

  test('the first one counts, of the tools that there are', () => {
    const text = `<invoke name="read_file"> and then ${BASH}`
    assert.equal(writtenCall(text, tools), 'read_file')
    assert.equal(writtenCall(text, [{ name: 'bash' }]), 'bash')
    assert.equal(writtenCall(text, []), undefined)
  })

  test('a long text is looked through in good time', () => {
    const text = '"arguments": {"name": "bash", "id": "'.repeat(3000)
    assert.equal(writtenCall(text, tools), undefined)
  })

  test('the note for the model that reads it', () => {
    const note =
      '\n\n(Note: this text holds what looks like a call of bash, written as text.' +
      ' Such a call was not run.)'
    assert.equal(noteOnCalls(BASH, tools), note)
    assert.equal(noteOnCalls('All is well.', tools), '')
  })
})
