/** The view: lanes read back, shown in columns, compared. */
import assert from 'node:assert/strict'
import { spawn } from 'node:child_process'
import {
  appendFileSync,
  cpSync,
  mkdirSync,
  mkdtempSync,
  rmSync,
  writeFileSync,
} from 'node:fs'
import { tmpdir } from 'node:os'
import { basename, join } from 'node:path'
import { after, test } from 'node:test'
import { stripVTControlCharacters } from 'node:util'
import {
  callLine,
  type LaneFile,
  type LaneLine,
  readFolder,
  readLane,
  requestSizes,
} from '../steps/support/base/lane-file.ts'
import { standIns, widthOf, wrap } from '../steps/support/base/width.ts'
import { renderComparison } from '../steps/support/cli/compare.ts'
import { renderFolder } from '../steps/support/cli/view.ts'

const folders: string[] = []
after(() => {
  for (const folder of folders) rmSync(folder, { recursive: true, force: true })
})

type Line = Record<string, unknown>
const tools = [{ name: 'bash', description: 'Runs a command.' }]
const user = (...content: Line[]) => ({ role: 'user', content })
const prompt = (content: string) => ({ role: 'user', content })
const reply = (...content: Line[]) => ({
  role: 'assistant',
  content,
  stop_reason: 'end_turn',
})
const text = (text: string) => ({ type: 'text', text })
const call = (id: string, name: string, input: unknown) => ({
  type: 'tool_use',
  id,
  name,
  input,
})
const result = (id: string, content: unknown, is_error?: boolean) => {
  return { type: 'tool_result', tool_use_id: id, content, is_error }
}

/** Writes a run into a temporary folder: one file for each lane, in the lane format. */
function folderOf(lanes: Record<string, Line[]>, step = '04-subagent'): string {
  const folder = mkdtempSync(join(tmpdir(), 'view-'))
  folders.push(folder)
  for (const [lane, lines] of Object.entries(lanes)) {
    const header = {
      step,
      lane,
      mode: 'offline',
      model: 'scripted',
      system: 'You code.',
      tools,
    }
    const all = [header, ...lines].map((line) =>
      JSON.stringify({ level: 'info', ...line }),
    )
    writeFileSync(join(folder, `${lane}.log`), `${all.join('\n')}\n`)
  }
  return folder
}

const run = (lanes: Record<string, Line[]>, step?: string): LaneFile[] =>
  readFolder(folderOf(lanes, step))

const WORK = [
  reply(call('tool_1', 'write_file', { path: 'hello.mjs', content: 'export {}\n' })),
  user(result('tool_1', 'Wrote 10 bytes to hello.mjs')),
  reply(text('现在运行它。'), call('tool_2', 'bash', { command: 'node hello.mjs' })),
  user(result('tool_2', 'FAILED\nsecond line', true)),
  reply(text('完成：你好世界程序已经写好，并且通过了它自己的检查，没有留下任何失败。')),
]
const BEFORE = { parent: [prompt('写一个程序'), ...WORK] }
const AFTER = {
  parent: [
    prompt('写一个程序'),
    reply(call('tool_1', 'task', { prompt: '请写 hello.mjs', description: '写程序' })),
    user(result('tool_1', '完成。')),
    reply(text('好了。')),
  ],
  'sub-1': [prompt('请写 hello.mjs'), ...WORK],
}

test('a lane is read back: header, lines in order, messages as they were sent', () => {
  const event = { level: 'error', event: 'api_error', status: 529 }
  const usage = { input_tokens: 7, output_tokens: 2 }
  const [lane] = run({ parent: [prompt('hi'), event, { ...reply(text('yo')), usage }] })
  assert.equal(lane.name, 'parent')
  assert.equal(lane.header.step, '04-subagent')
  assert.deepEqual(
    lane.lines.map(({ event, role }) => event ?? role),
    ['user', 'api_error', 'assistant'],
  )
  assert.deepEqual(lane.lines[2].usage, usage)
  assert.equal(lane.lines[2].stop_reason, 'end_turn')
  assert.deepEqual(lane.messages, [
    { role: 'user', content: 'hi' },
    { role: 'assistant', content: [text('yo')] },
  ])
})

test('a line that is none is refused with its file and number', () => {
  const header = '{"lane":"parent","tools":[]}\n'
  const cases: [string, RegExp][] = [
    [
      `${header}{"role":"user","content":"hi"}\n{"role":"assis`,
      /x\.log, line 3 is not JSON/,
    ],
    [`${header}\n{"role":"user","content":"hi"}\n`, /x\.log, line 2 is not JSON/],
    [
      `${header}{"level":"info"}\n`,
      /x\.log, line 2 is neither a message .* nor an event/,
    ],
    [`${header}{"role":"user"}\n`, /x\.log, line 2 is neither/],
    [`${header}${header}`, /x\.log, line 2 is neither/],
    [`${header}null\n`, /x\.log, line 2 is neither/],
    ['{"role":"user","content":"hi"}\n', /x\.log, line 1 is no header/],
    ['', /x\.log is empty/],
    ['\n\n', /x\.log is empty/],
  ]
  const path = join(folderOf({}), 'x.log')
  for (const [content, expected] of cases) {
    writeFileSync(path, content)
    assert.throws(() => readLane(path), expected, JSON.stringify(content))
  }
  writeFileSync(
    path,
    `\uFEFF${header}{"role":"user","content":"hi"}\n\n`.replaceAll('\n', '\r\n'),
  )
  assert.equal(readLane(path).messages.length, 1, 'as an editor may save it')
})

test('a folder is read parent first, children by number', () => {
  const folder = folderOf({ 'sub-10': [], 'sub-2': [], 'sub-1': [], parent: [] })
  writeFileSync(join(folder, 'notes.log'), 'not a lane')
  const names = readFolder(folder).map(({ name }) => name)
  assert.deepEqual(names, ['parent', 'sub-1', 'sub-2', 'sub-10'])
  assert.throws(() => readFolder(join(folder, 'none')), /no folder .*none/)
  const childOnly = folderOf({ 'sub-1': [] })
  assert.throws(() => readFolder(childOnly), /view-.* holds no parent\.log/)
})

test('a request is system prompt, tools and all messages before it, in bytes', () => {
  const failed = { event: 'api_error', status: 529 }
  const told = { event: 'reminder' }
  const [lane] = run({
    parent: [prompt('你好'), failed, reply(text('a')), told, prompt('b')],
  })
  const base = '"You code."'.length + JSON.stringify(tools).length
  const first = base + '{"role":"user","content":""}'.length + 6
  assert.deepEqual(requestSizes(lane), [first, first])
  const unanswered = run({ parent: [prompt('你好'), { event: 'no_answer' }] })[0]
  assert.deepEqual(requestSizes(unanswered), [first])
  const [longer] = run({
    parent: [prompt('你好'), reply(text('a')), prompt('b'), reply(text('c'))],
  })
  const added =
    '{"role":"assistant","content":[{"type":"text","text":"a"}]}' +
    '{"role":"user","content":"b"}'
  assert.deepEqual(requestSizes(longer), [first, first + added.length])
})

test('a call in one line names the field that tells most', () => {
  const line = (name: string, input: unknown) => callLine({ name, input })
  assert.equal(line('write_file', { content: 'x', path: 'a.mjs' }), 'write_file a.mjs')
  assert.equal(line('bash', { command: 'ls\n  -l' }), 'bash ls -l')
  assert.equal(line('task', { prompt: 'Do it all', description: 'do it' }), 'task do it')
  assert.equal(line('task', { prompt: 'Do it all' }), 'task Do it all')
  assert.equal(line('todo', { items: [1] }), 'todo {"items":[1]}')
})

test('a child stands opposite its task call, and the result below it', () => {
  assert.deepEqual(renderFolder(run(AFTER), 80), [
    'parent: 4 messages',
    'largest request 342 bytes',
    '1 user',
    '  写一个程序',
    '2 assistant',
    '  → task 写程序 ───────────────────────┬ sub-1: 6 messages',
    '                                       │ largest request 638 bytes',
    '                                       │ 1 user',
    '                                       │   请写 hello.mjs',
    '                                       │ 2 assistant',
    '                                       │   → write_file hello.mjs',
    '                                       │ 3 user',
    '                                       │   ← tool_1 Wrote 10 bytes to hello.mjs',
    '                                       │ 4 assistant',
    '                                       │   现在运行它。',
    '                                       │   → bash node hello.mjs',
    '                                       │ 5 user',
    '                                       │   ← tool_2 ✗ FAILED',
    '                                       │     second line',
    '                                       │ 6 assistant',
    '                                       │   完成：你好世界程序已经写好，并且通过',
    '                                       └   了它自己的检查，没有留下任何失败。',
    '3 user',
    '  ← tool_1 完成。',
    '4 assistant',
    '  好了。',
  ])
})

/** Where a text first stands: the row, and the column in characters. */
function find(lines: string[], text: string): [number, number] {
  const row = lines.findIndex((line) => line.includes(text))
  assert.notEqual(row, -1, `${text} is not in\n${lines.join('\n')}`)
  return [row, lines[row].indexOf(text)]
}

const task = (id: string, prompt: string, more = {}) =>
  call(id, 'task', { prompt, ...more })
const child = (text: string) => [
  prompt(text),
  reply({ type: 'text', text: `${text} is done` }),
]
const THREE = {
  parent: [
    prompt('go'),
    reply(task('tool_1', 'Job A'), task('tool_2', 'Job B'), task('tool_3', 'Job A')),
    user(result('tool_1', 'r1'), result('tool_2', 'r2'), result('tool_3', 'r3')),
  ],
  'sub-1': child('Job A'),
  'sub-2': child('Job A'),
  'sub-3': child('Job B'),
}

test('children of one reply stand side by side where the width allows', () => {
  const wide = renderFolder(run(THREE), 200)
  const [row] = find(wide, '→ task Job A')
  const [a, b, again] = ['sub-1: 2', 'sub-3: 2', 'sub-2: 2'].map((name) =>
    find(wide, name),
  )
  assert.deepEqual([a[0], b[0], again[0]], [row, row + 1, row + 2])
  assert.ok(a[1] < b[1] && b[1] < again[1], 'each in its own column')
  assert.ok(find(wide, '← tool_1 r1')[0] > find(wide, 'Job B is done')[0])
})

test('children of one reply stand one below the other where it does not', () => {
  const narrow = renderFolder(run(THREE), 80)
  const calls = ['sub-1: 2', 'sub-3: 2', 'sub-2: 2'].map((name) => find(narrow, name))
  assert.equal(new Set(calls.map(([, column]) => column)).size, 1)
  assert.match(narrow[calls[1][0]], /^ {2}→ task Job B ─+┬ sub-3/)
  assert.match(narrow[calls[2][0]], /^ {2}→ task Job A ─+┬ sub-2/)
  assert.ok(calls[1][0] > find(narrow, 'Job A is done')[0])
  assert.ok(find(narrow, '← tool_1 r1')[0] > calls[2][0] + 4)
})

test('a resumed child goes on opposite the call that resumed it', () => {
  const note = 'Files may have changed. Next'
  const lines = renderFolder(
    run({
      parent: [
        prompt('go'),
        reply(task('tool_1', 'First')),
        user(result('tool_1', 'r1')),
        reply(task('tool_2', 'Next', { resume: 'sub-1' })),
        user(result('tool_2', 'r2')),
      ],
      'sub-1': [...child('First'), ...child(note)],
    }),
    100,
  )
  const [again] = find(lines, '→ task Next')
  assert.match(lines[again], /┬ sub-1, resumed: 4 messages$/)
  assert.match(lines[again + 2], /│ 3 user$/)
  assert.ok(find(lines, 'First is done')[0] < find(lines, '← tool_1 r1')[0])
  assert.ok(find(lines, note)[0] < find(lines, '← tool_2 r2')[0])
  assert.equal(lines.filter((line) => line.includes(`${note} is done`)).length, 1)
})

test('a child that fits no call is shown below, by its name', () => {
  const lines = renderFolder(run({ ...AFTER, 'sub-2': child('Nobody asked') }), 80)
  const [row] = find(lines, 'Started by no task call')
  assert.ok(row > find(lines, '好了。')[0])
  assert.equal(lines[row + 1], 'sub-2: 2 messages')
  assert.equal(lines.at(-1), '  Nobody asked is done')
})

test('a result shows three lines, so that a failure below the first is seen', () => {
  const lines = renderFolder(
    run({
      parent: [
        user(result('tool_1', '\n\nok 1\n\nFAILED 2\n(exit code 1)\n')),
        user(result('tool_2', 'one\ntwo\nthree\nfour')),
        user(result('tool_3', 'long '.repeat(12))),
        user(result('tool_4', '')),
      ],
    }),
    40,
  )
  assert.deepEqual(lines.slice(2), [
    '1 user',
    '  ← tool_1 ok 1',
    '    FAILED 2',
    '    (exit code 1)',
    '2 user',
    '  ← tool_2 one',
    '    two',
    '    three…',
    '3 user',
    '  ← tool_3 long long long long long long',
    '    long long long long long long',
    '4 user',
    '  ← tool_4',
  ])
})

test('events and blocks of other kinds are told in a few words', () => {
  const error = { type: 'overloaded_error', message: 'Overloaded' }
  const lines = renderFolder(
    run({
      parent: [
        prompt('go'),
        { level: 'error', event: 'api_error', status: 529, error },
        { level: 'warn', event: 'no_answer' },
        { level: 'error', event: 'no_connection', message: 'refused' },
        { level: 'warn', event: 'capped', turns: 30 },
        reply({ type: 'thinking', thinking: 'hm', signature: 'x' }, text('')),
        user(result('tool_1', [text('a picture'), { type: 'image', source: {} }])),
      ],
    }),
    80,
  )
  assert.deepEqual(lines.slice(4), [
    '  ! api_error 529 overloaded_error Overloaded',
    '  ! no_answer',
    '  ! no_connection refused',
    '  ! capped {"turns":30}',
    '2 assistant',
    '  [thinking]',
    '3 user',
    '  ← tool_1 a picture',
    '    [image]',
  ])
})

test('no line is wider than the terminal, and nothing steers it', () => {
  const nasty = [
    '\x1b[2J\x1b]0;title\x07bell\r\n\ttab\rback\x9b31m',
    '很长的中文句子没有空格'.repeat(40),
    '👩‍👩‍👧‍👦🇨🇳👍🏽❤️'.repeat(60),
    `${'e\u0301\u200b'.repeat(90)}\u202eevil`,
    '\ud800 lone',
    'ｱｲｳ ＡＢＣ 한국어 '.repeat(30),
  ]
  const lines = nasty.flatMap((text, i) => [
    prompt(text),
    reply(
      { type: 'text', text },
      call(`${text}`, `${text}`, { command: text }),
      task(`t${i}`, text),
    ),
    user(result(text, text, true)),
    { event: text, message: text },
  ])
  const children = nasty.map((text, i) => [`sub-${i + 1}`, [prompt(text), ...lines]])
  const lanes = run({ parent: lines, ...Object.fromEntries(children) })
  const other = run(BEFORE, '02-tool-use')
  for (const width of [20, 41, 80, 200]) {
    for (const line of [
      ...renderFolder(lanes, width),
      ...renderComparison(lanes, other, width),
    ]) {
      assert.ok(widthOf(line) <= width, `${widthOf(line)} > ${width}: ${line}`)
      assert.doesNotMatch(line, /[\p{Cc}\p{Cs}\u202e]/u)
    }
  }
  assert.match(renderFolder(lanes, 80).join('\n'), /␛\[2J␛\]0;title␇bell/)
})

test('the width of a text is what a terminal makes of it', () => {
  const widths = {
    abc: 3,
    中文: 4,
    'e\u0301': 1,
    'a\u200bb': 2,
    '👩‍👩‍👧‍👦': 2,
    '❤️': 2,
    ｱ: 1,
    Ａ: 2,
    한: 2,
    '→✗…│': 4,
  }
  for (const [text, width] of Object.entries(widths))
    assert.equal(widthOf(text), width, text)
})

test('what steers a terminal is shown as something else', () => {
  assert.equal(standIns('a\tb\r\nc\u2028d'), 'a\tb\nc\nd')
  assert.equal(standIns('\x1b[31m\x07\r\0'), '␛[31m␇␍␀')
  assert.equal(standIns('\x9b\x7f\u202e\ud800\xad'), '\ufffd'.repeat(5))
  assert.equal(standIns('你好 👩‍👩‍👧‍👦 e\u0301'), '你好 👩‍👩‍👧‍👦 e\u0301')
})

test('a text is broken between words, and what is left out is marked', () => {
  assert.deepEqual(wrap('one two three', 8, 3), ['one two', 'three'])
  assert.deepEqual(wrap('one two three four five', 9, 2), ['one two', 'three…'])
  assert.deepEqual(wrap('\n\n a\n\nb \n', 9, 1), [' a…'])
  assert.deepEqual(wrap('only\n', 9, 1), ['only'])
  assert.deepEqual(wrap('', 9, 1), [])
  assert.deepEqual(wrap('x'.repeat(20), 9, 2), ['xxxxxxxxx', 'xxxxxxxx…'])
  assert.deepEqual(wrap('中文中文中文', 5, 2), ['中文', '中文…'])
  assert.deepEqual(wrap('a\tb', 9, 1), ['a    b'])
  assert.deepEqual(wrap(' '.repeat(9e6), 9, 1), ['…'])
})

test('colour changes nothing but the colour', () => {
  const coloured = renderFolder(run(AFTER), 80, true).join('\n')
  const [red, end] = ['\x1b[31m', '\x1b[0m']
  assert.ok(coloured.includes(`${red}  ← tool_2 ✗ FAILED${end}`))
  assert.ok(coloured.includes(`${red}    second line${end}`))
  const plain = renderFolder(run(AFTER), 80).join('\n')
  assert.equal(stripVTControlCharacters(coloured), plain)
})

test('a comparison reports what is, lane by lane', () => {
  const [before, now] = [run(BEFORE, '02-tool-use'), run(AFTER)]
  const lines = renderComparison(before, now, 80)
  const sums = [before[0], ...now].map((lane) =>
    requestSizes(lane).reduce((a, b) => a + b),
  )
  const at = lines.indexOf('bytes of all requests')
  const rows = lines.slice(at + 1, at + 6).map((line) => line.trim().split(/ {2,}/))
  const format = (n: number) => n.toLocaleString('en-US')
  assert.deepEqual(
    rows.map(([title, sum]) => [title, sum]),
    [
      ['02 parent', format(sums[0])],
      ['04 parent', format(sums[1])],
      ['04 sub-1', format(sums[2])],
      ['02 all lanes', format(sums[0])],
      ['04 all lanes', format(sums[1] + sums[2])],
    ],
  )
  const [first, , , , longest] = rows.map(([, , bar]) => bar.length)
  assert.ok(Math.abs(first / longest - sums[0] / (sums[1] + sums[2])) < 0.03)
  assert.equal(Math.max(...lines.map(widthOf)), 80)
  const percent = (part: number) => Math.round((100 * part) / sums[0])
  assert.equal(
    lines.at(-1),
    `04's parent sends ${percent(sums[1])} % of what 02's parent sends; ` +
      `all lanes together ${percent(sums[1] + sums[2])} %.`,
  )
  const most = lines.indexOf('bytes of the largest request')
  const largest = [before[0], ...now].map((lane) =>
    format(Math.max(...requestSizes(lane))),
  )
  for (const [i, size] of largest.entries()) {
    assert.equal(lines[most + 1 + i].trim().split(/ {2,}/)[1], size)
  }
  const messages = lines.indexOf('messages')
  assert.match(lines[messages + 5], /^ {2}04 all lanes {2}10 {2}█+$/)
  assert.doesNotMatch(lines.join('\n'), /tokens/)
})

test('tokens are compared only where an API counted them', () => {
  const usage = { input_tokens: 10, cache_read_input_tokens: 1000, output_tokens: 5 }
  const live = run({ parent: [prompt('go'), { ...reply(text('a')), usage }] })
  const lines = renderComparison(run(AFTER), live, 80)
  const [row] = find(lines, 'tokens in')
  assert.match(lines[row + 1], /A parent +–$/)
  assert.match(lines[row + 2], /B parent +1,010 {2}█+$/)
})

test('a comparison with a lane that has sent nothing says so', () => {
  const lines = renderComparison(run({ parent: [prompt('go')] }, '02-x'), run(AFTER), 80)
  assert.equal(lines.at(-1), "02's parent has sent nothing to compare with.")
})

test('a lane of 10 000 messages is shown at once', () => {
  const [parent] = run({ parent: [prompt('go')] })
  const output = 'a line of output\n'.repeat(50)
  for (let i = 0; i < 5000; i++) {
    const content = [text('我来运行它。'), call(`tool_${i}`, 'bash', { command: output })]
    const results = [result(`tool_${i}`, output)]
    const turn = [
      { role: 'assistant', content },
      { role: 'user', content: results },
    ]
    parent.lines.push(...(turn as LaneLine[]))
  }
  const start = process.cpuUsage() // unlike a clock, the same on a busy machine
  assert.ok(renderFolder([parent], 80).length > 20_000)
  renderComparison([parent], run(BEFORE, '02-tool-use'), 80)
  const took = process.cpuUsage(start).user / 1000
  assert.ok(took < 2000, `${Math.round(took)} ms`)
})

const SUPPORT = join(import.meta.dirname, '../steps/support')

/** Runs the command as a reader does, but for npm. `cut` closes its output early. */
async function view(
  args: string[],
  { support = SUPPORT, columns = '80', cut = false } = {},
) {
  const command = ['--import', 'tsx', join(support, 'view.ts'), ...args]
  const env = { ...process.env, COLUMNS: columns }
  const child = spawn(process.execPath, command, {
    env,
    stdio: ['ignore', 'pipe', 'pipe'],
  })
  let [out, err] = ['', '']
  child.stdout.setEncoding('utf8').on('data', (data) => {
    out += data
    if (cut) child.stdout.destroy()
  })
  child.stderr.setEncoding('utf8').on('data', (data) => {
    err += data
  })
  const code = await new Promise((resolve) => child.on('close', resolve))
  return { code, out, err }
}

test('the command shows a folder as plain text, its path first', async () => {
  const folder = folderOf(AFTER)
  const { code, out, err } = await view([folder], { columns: '120' })
  const [first, blank, ...lines] = out.split('\n')
  assert.deepEqual({ code, err, blank }, { code: 0, err: '', blank: '' })
  assert.ok(
    first.includes(basename(folder)) && first.endsWith(' (offline, scripted)'),
    first,
  )
  assert.deepEqual(lines, [...renderFolder(readFolder(folder), 120), ''])
})

test('a number or name means the last offline run, else the recording', async () => {
  const root = folderOf({})
  const support = join(root, 'steps/support')
  cpSync(SUPPORT, support, { recursive: true })
  writeFileSync(join(root, 'package.json'), '{"type":"module"}')
  for (const step of ['02-tool-use', '04-subagent']) {
    writeFileSync(join(root, 'steps', `${step}.ts`), '')
    const lanes = step === '02-tool-use' ? BEFORE : AFTER
    cpSync(folderOf(lanes, step), join(root, 'logs/recorded', step), { recursive: true })
  }
  cpSync(folderOf(BEFORE), join(root, 'logs/04-subagent'), { recursive: true })
  mkdirSync(join(root, 'logs/02-tool-use'))
  const [both, unknown, none] = await Promise.all([
    view(['02-tool-use', '4'], { support, columns: '200' }),
    view(['99'], { support }),
    view([], { support }),
  ])
  const [first, second, blank] = both.out.split('\n')
  const recording = join('logs', 'recorded', '02-tool-use (offline, scripted)')
  const last = join('logs', '04-subagent (offline, scripted)')
  assert.ok(first.startsWith('02: ') && first.endsWith(recording), both.out + both.err)
  assert.ok(second.startsWith('04: ') && second.endsWith(last), both.out)
  assert.equal(blank, '')
  assert.match(both.out, /\n04's parent sends 100 % of what 02's parent sends; .*\n$/)
  for (const { code, out, err } of [unknown, none]) {
    assert.deepEqual({ code, out }, { code: 1, out: '' })
    assert.match(
      err,
      /Usage: npm run view 04[\s\S]*Recorded: 02-tool-use, 04-subagent\n$/,
    )
  }
  assert.match(unknown.err, /^There is no run "99"\.\n/)
})

test('a broken lane is named, and a reader that leaves early is no fault', async () => {
  const broken = folderOf(AFTER)
  appendFileSync(join(broken, 'sub-1.log'), '{"role":"assis')
  const long = Array.from({ length: 4000 }, () => prompt('x'.repeat(200)))
  const [bad, cut] = await Promise.all([
    view([broken]),
    view([folderOf({ parent: long })], { cut: true }),
  ])
  assert.deepEqual({ code: bad.code, out: bad.out }, { code: 1, out: '' })
  assert.match(bad.err, /^.*sub-1\.log, line 8 is not JSON: .*\n$/)
  assert.deepEqual({ code: cut.code, err: cut.err }, { code: 0, err: '' })
})
