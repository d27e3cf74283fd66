/** A run read back: its lanes, their sizes, in columns and compared; record. */
import assert from 'node:assert/strict'
import * as fs from 'node:fs'
import { tmpdir } from 'node:os'
import { join, parse } from 'node:path'
import { after, test } from 'node:test'
import { asOneHistory, partsOf } from '../steps/support/base/family.ts'
import {
  callLine,
  type LaneFile,
  readFolder,
  readLane,
  requestSizes,
} from '../steps/support/base/lane-file.ts'
import { fit, standIns, widthOf } from '../steps/support/base/width.ts'
import { renderRun } from '../steps/support/cli/columns.ts'
import { renderComparison } from '../steps/support/cli/compare.ts'
import { wrap } from '../steps/support/cli/wrap.ts'
import { filesOf, makeRoot, runStep, startStep } from './kit.ts'

const folders: string[] = []
after(() => {
  for (const folder of folders) fs.rmSync(folder, { recursive: true, force: true })
})

type Line = Record<string, unknown>
const tools = [{ name: 'bash', description: 'Runs a command.' }]
const user = (...content: Line[]) => ({ role: 'user', content })
const prompt = (content: string) => ({ role: 'user', content })
const copy = (...content: Line[]) => ({ role: 'assistant', content })
const reply = (...content: Line[]) => ({ ...copy(...content), stop_reason: 'end_turn' })
const text = (text: string) => ({ type: 'text', text })
const call = (id: string, name: string, input: unknown) => {
  return { type: 'tool_use', id, name, input }
}
const task = (id: string, prompt: string, more = {}) =>
  call(id, 'task', { prompt, ...more })
const result = (id: string, content: unknown, is_error?: boolean) => {
  return { type: 'tool_result', tool_use_id: id, content, is_error }
}
const compacted = (by: string, ...replaced: number[]) => {
  return { event: 'compacted', replaced, by }
}
const child = (words: string) => [prompt(words), reply(text(`${words} is done`))]

/** Writes a run into a temporary folder: one file for each lane, in the lane format. */
function folderOf(lanes: Record<string, Line[]>, step = '04-subagent'): string {
  const folder = fs.mkdtempSync(join(tmpdir(), 'view-'))
  folders.push(folder)
  const model = { mode: 'offline', model: 'scripted', system: 'You code.', tools }
  for (const [lane, lines] of Object.entries(lanes)) {
    const all = [{ step, lane, ...model }, ...lines].map((line) => {
      return `${JSON.stringify({ level: 'info', ...line })}\n`
    })
    fs.writeFileSync(join(folder, `${lane}.log`), all.join(''))
  }
  return folder
}

const run = (lanes: Record<string, Line[]>, step?: string): LaneFile[] =>
  readFolder(folderOf(lanes, step))

const VIEWS = join(import.meta.dirname, 'views')
const ALONE = readFolder(join(VIEWS, 'alone'))
const CHILD = readFolder(join(VIEWS, 'child'))

for (const path of fs.readdirSync(VIEWS, { recursive: true, encoding: 'utf8' })) {
  const { dir, name, ext } = parse(path)
  if (dir === '' || ext !== '.txt') continue
  test(`${dir}, as it looks at ${name} columns`, () => {
    const golden = fs.readFileSync(join(VIEWS, path), 'utf8').trimEnd()
    const lines = renderRun(readFolder(join(VIEWS, dir)), Number(name))
    assert.equal(lines.join('\n'), golden)
  })
}

test('a broken line is refused with its file and number', () => {
  const header = '{"lane":"parent","tools":[]}\n'
  const hi = '{"role":"user","content":"hi"}\n'
  const cases: [string, RegExp][] = [
    [`${header}${hi}{"role":"assis`, /x\.log, line 3 is not JSON/],
    [`${header}\n${hi}`, /x\.log, line 2 is not JSON/],
    [`${header}{"level":"info"}\n`, /line 2 is neither a message .* nor an event/],
    [`${header}{"role":"user"}\n`, /x\.log, line 2 is neither/],
    [`${header}${header}`, /x\.log, line 2 is neither/],
    [`${header}null\n`, /x\.log, line 2 is neither/],
    [hi, /x\.log, line 1 is no header/],
    ['', /x\.log is empty/],
    ['\n\n', /x\.log is empty/],
  ]
  const path = join(folderOf({}), 'x.log')
  for (const [content, expected] of cases) {
    fs.writeFileSync(path, content)
    assert.throws(() => readLane(path), expected, JSON.stringify(content))
  }
  fs.writeFileSync(path, `\uFEFF${header}${hi}\n`.replaceAll('\n', '\r\n'))
  assert.equal(readLane(path).messages.length, 1, 'as an editor may save it')
})

test('a folder is read parent first, then any names in their natural order', () => {
  const order = ['parent', 'a', 'sub-1', 'sub-1.summary-1', 'sub-2', 'sub-10', '子']
  const folder = folderOf(
    Object.fromEntries(order.toReversed().map((name) => [name, []])),
  )
  const names = readFolder(folder).map(({ name }) => name)
  assert.deepEqual(names, order)
  assert.throws(() => readFolder(join(folder, 'none')), /no folder .*none/)
  const childOnly = folderOf({ 'sub-1': [] })
  assert.throws(() => readFolder(childOnly), /view-.* holds no parent\.log/)
})

test('a request is system prompt, tools and all messages before it, in bytes', () => {
  const bytes = (...values: unknown[]) =>
    values.reduce((sum: number, it) => sum + Buffer.byteLength(JSON.stringify(it)), 0)
  const first = bytes('You code.', tools, prompt('你好'))
  const failed = { event: 'api_error', status: 529 }
  const [a, b] = [reply(text('a')), reply(text('b'))]
  const second = first + bytes(copy(text('a')), prompt('b'))
  const summed = first - bytes(prompt('你好')) + bytes(prompt('sum'), prompt('b'))
  // biome-ignore format: a table
  const cases: [Line[], number[]][] = [
    [[prompt('你好'), failed, a, { event: 'reminder' }, prompt('b')], [first, first]],
    [[prompt('你好'), { event: 'no_answer' }], [first]],
    [[prompt('你好'), a, prompt('b'), b], [first, second]],
    // What was replaced is gone; what was copied into a summary lane was no request.
    [[prompt('你好'), a, prompt('b'), compacted('x', 1, 2), prompt('sum'), b], [first, summed]],
    [[prompt('你好'), copy(text('a')), prompt('b'), b], [second]],
  ]
  for (const [lines, sizes] of cases)
    assert.deepEqual(requestSizes(run({ parent: lines })[0]), sizes)
})

test('as one history a request holds what had come back by then', () => {
  const note = 'Files may have changed. Next'
  const lanes = run({
    parent: [
      prompt('go'),
      { event: 'bad_reply', content: [task('tool_1', 'B')] },
      reply(task('tool_1', 'A'), task('tool_2', 'B')),
      user(result('tool_1', 'a'), result('tool_2', 'b', true)),
      { event: 'api_error', status: 529 },
      reply(task('tool_3', 'Next', { resume: 'sub-1' }), task('tool_4', 'unknown')),
      user(result('tool_3', 'c'), result('tool_4', 'none', true)),
      reply(text('done')),
    ],
    'sub-1': [...child('A'), { event: 'outcome', turns: 1 }, ...child(note)],
    'sub-2': child('B'),
    'sub-2.summary-1': child('unknown'),
  })
  const bytesOf = (words: string) => {
    const messages = [prompt(words), copy(text(`${words} is done`))]
    return Buffer.byteLength(messages.map((it) => JSON.stringify(it)).join(''))
  }
  const [ab, all] = [
    bytesOf('A') + bytesOf('B'),
    bytesOf('A') + bytesOf('B') + bytesOf(note),
  ]
  const own = requestSizes(lanes[0])
  const added = asOneHistory(lanes).map((size, i) => size - own[i])
  assert.deepEqual(added, [0, 0, ab, ab, all])
  const parts = [...partsOf(lanes)].map(([{ id }, { lane, from, to }]) => {
    return [id, lane.name, from, to]
  })
  assert.deepEqual(parts, [
    ['tool_1', 'sub-1', 0, 3],
    ['tool_2', 'sub-2', 0, 2],
    ['tool_3', 'sub-1', 3, 5],
  ])
})

test('a call in one line names the field that tells most', () => {
  const cases: [string, string, unknown][] = [
    ['write_file a.mjs', 'write_file', { content: 'x', path: 'a.mjs' }],
    ['bash ls -l', 'bash', { command: 'ls\n  -l' }],
    ['task do it', 'task', { prompt: 'Do it all', description: 'do it' }],
    ['task Do it all', 'task', { prompt: 'Do it all' }],
    ['todo {"items":[1]}', 'todo', { items: [1] }],
  ]
  for (const [line, name, input] of cases) assert.equal(callLine({ name, input }), line)
})

/** Where a text first stands: the row, and the column in characters. */
function find(lines: string[], text: string): [number, number] {
  const row = lines.findIndex((line) => line.includes(text))
  assert.notEqual(row, -1, `${text} is not in\n${lines.join('\n')}`)
  return [row, lines[row].indexOf(text)]
}

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
    reply({ type: 'text', text }, call(text, text, { command: text })),
    reply(task(`t${i}`, text)),
    user(result(text, text, true)),
    { event: text, message: text },
  ])
  const children = nasty.map((text, i) => [`sub-${i + 1}`, [prompt(text), ...lines]])
  const others = { 'sub-9': child('Nobody asked'), 'sub-1.summary-1': lines }
  const lanes = run({ parent: lines, ...Object.fromEntries(children), ...others })
  const other = run({ parent: lines, ['很长的中文'.repeat(9)]: lines }, '02-tool-use')
  for (const width of [20, 80]) {
    const shown = [renderRun(lanes, width), renderComparison(lanes, other, width)].flat()
    for (const line of shown) {
      assert(widthOf(line) <= width, `${widthOf(line)} > ${width}: ${line}`)
      assert.doesNotMatch(line, /[\p{Cc}\p{Cs}\u202e]/u)
    }
  }
  assert.match(renderRun(lanes, 80).join('\n'), /␛\[2J␛\]0;title␇bell/)
})

const FAMILY = '👩‍👩‍👧‍👦'

test('text: its width, what would steer a terminal, where it breaks and is cut', () => {
  // biome-ignore format: a table
  const widths: Record<string, number> = {
    abc: 3, 中文: 4, 'e\u0301': 1, 'a\u200bb': 2, [FAMILY]: 2, '❤️': 2, ｱ: 1, Ａ: 2, 한: 2,
    '→✗…│': 4,
  }
  for (const [text, width] of Object.entries(widths))
    assert.equal(widthOf(text), width, text)
  assert.equal(standIns('a\tb\r\nc\u2028d'), 'a\tb\nc\nd')
  assert.equal(standIns('\x1b[31m\x07\r\0'), '␛[31m␇␍␀')
  assert.equal(standIns('\x9b\x7f\u202e\ud800\xad'), '\ufffd'.repeat(5))
  assert.equal(standIns(`你好 ${FAMILY} e\u0301`), `你好 ${FAMILY} e\u0301`)
  // biome-ignore format: a table
  const wrapped: [string, number, number, string[]][] = [
    ['one two three', 8, 3, ['one two', 'three']], ['', 9, 1, []],
    ['one two three four five', 9, 2, ['one two', 'three…']],
    ['\n\n a\n\nb \n', 9, 1, [' a…']], ['一二三四五', 4, 9, ['一二', '三四', '五']],
    ['a\tb', 9, 1, ['a    b']], ['x'.repeat(5000), 4, 2, ['xxxx', 'xxx…']],
  ]
  for (const [text, width, max, lines] of wrapped)
    assert.deepEqual(wrap(text, width, max), lines, text.slice(0, 20))
  // biome-ignore format: a table
  const fitted: [string, number, string][] = [
    ['12345', 5, '12345'], ['123456', 5, '1234…'], ['一二三', 5, '一二…'],
    ['a\nb', 5, 'a'], ['\x07\t!', 9, '␇    !'], [`12${FAMILY}5`, 4, '12…'],
  ]
  for (const [text, columns, line] of fitted) assert.equal(fit(text, columns), line)
})

test('a comparison reports what is, lane by lane', () => {
  const golden = fs.readFileSync(join(VIEWS, 'compared.txt'), 'utf8').trimEnd()
  assert.equal(renderComparison(ALONE, CHILD, 80).join('\n'), golden)
})

test('tokens stand where an API counted them; who sent nothing is told', () => {
  const usage = { input_tokens: 10, cache_read_input_tokens: 1000, output_tokens: 5 }
  const live = run({ parent: [prompt('go'), { ...reply(text('a')), usage }] })
  const lines = renderComparison(CHILD, live, 80)
  const [row] = find(lines, 'tokens in')
  assert.match(lines[row + 1], /A parent +–$/)
  assert.match(lines[row + 2], /B parent +1,010 {2}█+$/)
  const silent = run({ parent: [prompt('go')] }, '02-x')
  const [said] = renderComparison(silent, CHILD, 80).slice(-1)
  assert.equal(said, "02's parent has sent nothing to compare with.")
})

/** Runs a command as a reader does, but for npm. */
const command = (name: string, args: string[], root = makeRoot(), columns = '80') =>
  runStep({ step: `support/cli/${name}`, args, root, env: { COLUMNS: columns } })
const view = (args: string[], root?: string, columns?: string) =>
  command('view', args, root, columns)

test('the command shows a folder as plain text, its path first', async () => {
  const folder = join(VIEWS, 'child')
  const { code, stdout, stderr } = await view([folder], undefined, '120')
  const [first, blank, ...lines] = stdout.split('\n')
  assert.deepEqual([code, stderr, blank], [0, '', ''])
  assert(first.endsWith(`${join('views', 'child')} (offline, scripted)`), first)
  assert.deepEqual(lines, [...renderRun(readFolder(folder), 120), ''])
})

test('a number or name means the last offline run, else the recording', async (t) => {
  const root = makeRoot(t)
  fs.cpSync(join(VIEWS, 'child'), join(root, 'logs/04-subagent'), { recursive: true })
  fs.mkdirSync(join(root, 'logs/02-tool-use'))
  const [both, unknown, none] = await Promise.all([
    view(['02-tool-use', '4'], root, '200'),
    view(['99'], root),
    view([], root),
  ])
  const [first, second, blank] = both.stdout.split('\n')
  assert.equal(first, `02: ${join('logs/recorded/02-tool-use')} (offline, scripted)`)
  assert.equal(second, `04: ${join('logs/04-subagent')} (offline, scripted)`)
  assert.equal(blank, '')
  assert.match(both.stdout, /\n04's parent sends \d+ % of what 02's parent sends; .*\n$/)
  for (const { code, stdout, stderr } of [unknown, none]) {
    assert.deepEqual([code, stdout], [1, ''])
    assert.match(stderr, /Usage: npm run view 04[\s\S]*Recorded: 01-agent-loop, .*\n$/)
  }
  assert.match(unknown.stderr, /^There is no run "99"\.\n/)
})

test('a broken lane is named, and a reader that leaves early is no fault', async (t) => {
  const broken = folderOf({ parent: [], 'sub-1': child('Job') })
  fs.appendFileSync(join(broken, 'sub-1.log'), '{"role":"assis')
  const long = Array.from({ length: 4000 }, () => prompt('x'.repeat(200)))
  const bad = await view([broken])
  assert.deepEqual([bad.code, bad.stdout], [1, ''])
  assert.match(bad.stderr, /^.*sub-1\.log, line 4 is not JSON\.\n$/)
  const args = [folderOf({ parent: long })]
  const cut = startStep({ step: 'support/cli/view', args, root: makeRoot(t) })
  cut.child.stdout.once('data', () => cut.child.stdout.destroy())
  const { code, stderr } = await cut.result
  assert.deepEqual([code, stderr], [0, ''])
})

test('the end of a run, view and a comparison say the same sizes', async (t) => {
  const root = makeRoot(t)
  const { stdout } = await runStep({ step: '04-subagent', root })
  const lanes = readFolder(join(root, 'logs/04-subagent'))
  const most = (sizes: number[]) => Math.max(...sizes).toLocaleString('en-US')
  const [parent, sub] = lanes.map((lane) => most(requestSizes(lane)))
  const one = `${most(asOneHistory(lanes))} with its children's messages`
  const size = `largest request ${parent} bytes (computed: ${one})`
  const [count, others] = lanes.map(({ messages }) => `${messages.length} messages`)
  const child = `sub-1: ${others}, largest request ${sub} bytes`
  assert(stdout.includes(`\nparent: ${count}, ${size}\n${child}\n`), stdout)
  const shown = renderRun(lanes, 300)
  assert.deepEqual(shown.slice(0, 2), [`parent: ${count}`, size])
  find(shown, `largest request ${sub} bytes`)
  const compared = renderComparison(lanes, lanes, 80)
  const [row] = find(compared, 'bytes of the largest request')
  assert.match(compared[row + 1], RegExp(`A parent +${parent} `))
  assert.match(compared[row + 3], RegExp(`A sub-1 +${sub} `))
})

test('record makes it anew, by number or folder, but loses no turn of the model', async (t) => {
  const root = makeRoot(t)
  const record = (...names: string[]) => command('record', names, root)
  const recorded = (name: string) => join(root, 'logs/recorded', name)
  const folder = folderOf({})
  fs.cpSync(recorded('04-subagent'), folder, { recursive: true })
  fs.writeFileSync(join(folder, 'notes.txt'), 'kept')
  const edit = (path: string, from: string | RegExp, to: string) => {
    const before = fs.readFileSync(path, 'utf8')
    assert.match(before, RegExp(from))
    fs.writeFileSync(path, before.replaceAll(from, to))
  }
  const folders = [folder, recorded('02-tool-use')]
  const before = folders.map(filesOf)
  edit(join(folder, 'sub-1.log'), 'Wrote ', 'Wrote? ')
  edit(join(folders[1], 'parent.log'), '"tool_1"', '"mine"')
  const made = await record('2', folder)
  assert.equal(made.code, 0, made.stderr)
  assert.deepEqual(folders.map(filesOf), before)

  const name = '08-failure.same-cause'
  edit(join(recorded(name), 'parent.log'), /^((?:.*\n){2}).*\n/g, '$1')
  const broken = filesOf(recorded(name))
  const { code, stderr } = await record(name)
  assert.equal(code, 1)
  assert.match(stderr, /08-failure\.same-cause: the run .* Nothing was written over it/)
  assert.deepEqual(filesOf(recorded(name)), broken)
})

test('both commands say what they take', async () => {
  const root = makeRoot()
  for (const name of ['view', 'record']) {
    const { code, stdout, stderr } = await command(name, ['--help'], root)
    assert.deepEqual([code, stderr], [0, ''])
    assert.match(stdout, RegExp(`^Usage: npm run ${name} 04`))
  }
  const { code, stderr } = await command('record', ['99'], root)
  assert.equal(code, 1)
  assert.match(stderr, /^There is no recording "99"\.\nUsage: npm run record 04/)
})
