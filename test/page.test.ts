/** The page: its parts in Node, and in a real browser what only a browser shows. */
import assert from 'node:assert/strict'
import * as fs from 'node:fs'
import { tmpdir } from 'node:os'
import { basename, dirname, join } from 'node:path'
import { after, before, describe, test } from 'node:test'
import { pathToFileURL } from 'node:url'
import { makePage, PAGE, RECORDED } from '../docs/page/join.ts'
import { asOneHistory } from '../steps/support/base/family.ts'
import { readFolder, requestSizes } from '../steps/support/base/lane-file.ts'
import { findBrowser, type Json, openPage, type Page } from './page-browser.ts'

const SOURCES = join(dirname(PAGE), 'page')
/** A part of the page; it is JavaScript without types. */
const part = (name: string): Promise<Json> =>
  import(pathToFileURL(join(SOURCES, name)).href)
const lane = await part('lane.js')
const facts = await part('facts.js')
const { readSession } = await part('session.js')
const html = fs.readFileSync(PAGE, 'utf8')
const { makeRun } = await part('run.js')
const folders = fs.readdirSync(RECORDED).sort()
const rowsOf = (lines: unknown[]) =>
  lines.map((it) => (typeof it === 'string' ? it : JSON.stringify(it))).join('\n')
const laneOf = (lines: unknown[]) => lane.readLane('a.log', rowsOf(lines))
const runOf = (...all: unknown[][]) => makeRun('own', 'own', all.map(laneOf), false)
const recording = (name: string) => {
  const read = (file: string) => [fs.readFileSync(join(RECORDED, name, file), 'utf8')]
  return runOf(...fs.readdirSync(join(RECORDED, name)).map(read))
}
const bytes = (...values: unknown[]) =>
  values.reduce<number>((sum, it) => {
    const sent = JSON.stringify(it, (key, at) => (key === 'stop_reason' ? undefined : at))
    return sum + Buffer.byteLength(sent)
  }, 0)
const sizesOf = (requests: Json[]) => requests.map(({ size }) => size)

const tools = [{ name: 'bash', description: 'Runs.', input_schema: { type: 'object' } }]
const head = (lane: string, step = 'own') => ({ step, lane, system: 'You.', tools })
const user = (content: unknown) => ({ role: 'user', content })
const reply = (...content: unknown[]) =>
  Object({ role: 'assistant', content, stop_reason: null })
const words = (text: string) => ({ type: 'text', text })
const call = (id: string, name: string, input: unknown) =>
  Object({ type: 'tool_use', id, name, input })
const task = (id: string, prompt: string, more = {}) =>
  call(id, 'task', { prompt, ...more })
const result = (tool_use_id: string, content: unknown, more = {}) =>
  Object({ type: 'tool_result', tool_use_id, content, ...more })

test('the shipped page is what its sources and the recordings give', () => {
  assert(html === makePage(), 'npm run page brings docs/index.html up to date')
  for (const name of fs.readdirSync(SOURCES)) {
    const lines = fs.readFileSync(join(SOURCES, name), 'utf8').split('\n').length
    assert(lines <= 400, `${name} has ${lines} lines`)
  }
})

test('it fetches nothing, and makes no markup of text', () => {
  const code = html.replace(/<script type="application\/jsonl"[\s\S]*?<\/script>/g, '')
  assert.doesNotMatch(code, /innerHTML|outerHTML|insertAdjacent|document\.write|eval\(/)
  assert.doesNotMatch(code, /<(link|script|img|iframe)\b[^>]*\b(src|href)="(?!data:)/)
  assert.doesNotMatch(code, /https?:\/\/(?!www\.w3\.org\/2000\/svg')/)
})

test('every label is there in English and in Chinese', async () => {
  const { ENGLISH } = await part('words-en.js')
  const { CHINESE } = await part('words-zh.js')
  const shapeOf = (it: Json | string): unknown =>
    typeof it === 'string'
      ? (it.match(/\{\w+\}/g) ?? []).sort()
      : Object.entries(it).map(([key, value]) => [key, shapeOf(value)])
  assert.deepEqual(shapeOf(CHINESE), shapeOf(ENGLISH))
  assert.doesNotMatch(JSON.stringify({ ...ENGLISH, language: '' }), /[\u4e00-\u9fff]/)
})

test('requests are as large as the steps count them, also as one history', () => {
  for (const name of folders) {
    const [run, lanes] = [recording(name), readFolder(join(RECORDED, name))]
    assert.deepEqual(sizesOf(facts.asOneHistory(run)), asOneHistory(lanes), name)
    const drawn = run.lanes.map(({ requests }: Json) => sizesOf(requests))
    assert.deepEqual(drawn, lanes.map(requestSizes), name)
  }
})

test('a request without a reply counts, a note does not', () => {
  const events = 'api_error empty_reply no_answer no_connection bad_reply call_as_text'
  const lines = events.split(' ').map((event) => ({ level: 'warn', event }))
  const [{ requests }] = runOf([head('parent'), user('Go.'), ...lines]).lanes
  assert.deepEqual(sizesOf(requests), Array(5).fill(bytes('You.', tools, user('Go.'))))
})

test('as one history: what the children had is added when they are back', () => {
  const first = [user('One.'), reply(words('1'))]
  const second = [user('Two.\n\n(Files may have changed.)'), reply(words('22'))]
  const [one, two] = [task('t1', 'One.'), task('t2', 'Two.', { resume: 'sub-1' })]
  const back = [user([result('t1', '1')]), user([result('t2', '2', { is_error: true })])]
  const parent = [user('Go.'), reply(one), back[0], reply(two), back[1], reply()]
  const child = [...first, ...second, { event: 'outcome' }]
  const run = runOf([head('sub-1'), ...child], [head('parent'), ...parent])
  const sizes = sizesOf(run.lanes[0].requests)
  const added = sizesOf(facts.asOneHistory(run)).map((size, i) => size - sizes[i])
  assert.deepEqual(added, [0, bytes(...first), bytes(...first, ...second)])
  const marks = facts.landmarksOf(run).map(({ moment, key }: Json) => `${key} ${moment}`)
  assert.deepEqual(marks, ['task 2', 'back 5', 'task 6', 'failed 10'])
  assert.deepEqual(facts.search(run, 'files MAY'), [7])
  const states = [0, 3, 5, 8, 9].map((at) => facts.stateAt(run, run.lanes[1], at).state)
  assert.equal(states.join(), 'unborn,asks,rests,ended,ended', 'an event is no work')
  assert.deepEqual(facts.stateAt(run, run.lanes[0], 3), { state: 'waits', who: 'sub-1' })
})

test('lanes of any name are sorted; those that run at once are told in turn', () => {
  const names = ['sub-10', 'parent', 'helper', 'sub-2', 'sub-1', 'sub-1.summary-1']
  const tasks = ['sub-1', 'sub-10'].map((it) => task(it, it))
  const run = runOf(
    ...names.map((it) => [head(it), user(it), reply(...(it === 'parent' ? tasks : []))]),
  )
  const sorted = 'parent, helper, sub-1, sub-1.summary-1, sub-2, sub-10'
  assert.equal(run.lanes.map(({ name }: Json) => name).join(', '), sorted)
  const order = run.moments.slice(2, 5).map(({ lane }: Json) => lane.name)
  assert.deepEqual(order, ['sub-1', 'sub-10', 'sub-1'])
})

/* A child that compacts twice; its summaries are lanes of their own. */
const said = (n: number) => reply(call(`t${n}`, 'bash', { command: `echo ${n}` }))
const got = (n: number) => user([result(`t${n}`, `${n}`.repeat(50))])
const old = [user('Look.'), said(1), got(1), said(2), got(2), said(3), got(3)]
const sums = [user('Summary of 2 to 5.'), user('Summary of 2 to 4.')]
const first = { event: 'compacted', replaced: [2, 3, 4, 5], by: 'sub-1.summary-1' }
const second = { event: 'compacted', replaced: [2, 3, 4], by: 'again' }
const found = [sums[1], reply(words('Found.'))]
const compacted = [
  [head('parent'), user('Go.'), reply(task('t', 'Look.')), user([result('t', 'Found.')])],
  [head('sub-1'), ...old, first, sums[0], said(4), got(4), second, ...found],
  [head('sub-1.summary-1'), ...old.slice(0, 5), user('Sum up.'), reply(words('2 to 5'))],
  [head('again'), sums[0], said(3), got(3), user('Sum up.'), reply(words('2 to 4'))],
]

test('a compaction: what it replaced is left out of the next request', () => {
  const run = runOf(...compacted)
  const child = run.lanes.find(({ name }: Json) => name === 'sub-1')
  const held = [user('Look.'), sums[1], said(4), got(4)]
  assert.equal(child.requests.at(-1).size, bytes('You.', tools, ...held))
  const gone = [...child.leftOut].map(([line, by]) => `${line}>${by}`).join(' ')
  assert.equal(gone, '1>8 2>8 3>8 4>8 8>12 5>12 6>12')
  const owners = run.parts.map(({ lane, owner }: Json) => `${lane.name}@${owner.name}`)
  assert.equal(owners.join(), 'sub-1@parent,sub-1.summary-1@sub-1,again@sub-1')
  const all = compacted[1].slice(1).filter((line) => 'role' in line)
  assert.equal(facts.broughtBack(run, 9), bytes(...all), 'a summary lane holds copies')
})

/* A Claude Code session, with all that makes one hard to read. */
let rowCount = 0
const row = (parent: Json | undefined, message: Json, more = {}): Json => {
  rowCount += 1
  const ids = { uuid: `u${rowCount}`, parentUuid: parent?.uuid ?? null, sessionId: 's-1' }
  return { type: message.role, ...ids, isSidechain: false, message, ...more }
}
const counted = (id: string, tokens: number, ...content: unknown[]) => {
  const usage = { input_tokens: 1, cache_read_input_tokens: tokens, output_tokens: 7 }
  return { ...reply(...content), id, usage }
}
const agent = (id: string, prompt: string) =>
  call(id, 'Agent', { prompt, subagent_type: 'Explore' })
const chain = (...messages: Json[]) => {
  const rows: Json[] = []
  for (const it of messages) rows.push({ ...row(rows.at(-1), it), isSidechain: true })
  return rows
}
const start = row(undefined, user('Compare two modules.'))
// A dead end; one reply in three rows, and each result beside the way from row to row.
const replied = ['m0', 'm1'].map((id) =>
  row(start, counted(id, 100, words('Two agents.'))),
)
for (const it of [agent('c1', 'Web?'), agent('c2', 'Jobs?')]) {
  replied.push(row(replied.at(-1), counted('m1', 100, it)))
}
const answers = [
  row(replied[2], user([result('c1', 'ok')]), { toolUseResult: { agentId: 'web' } }),
  row(replied[3], user([result('c2', 'ok')])),
]
const compact = { type: 'system', subtype: 'compact_boundary' }
const boundary = row(undefined, {}, { ...compact, logicalParentUuid: answers[1].uuid })
const again = row(boundary, user('This session is being continued.'))
const refused = row(again, reply(words('API Error: 529')), { isApiErrorMessage: true })
const last = row(refused, counted('m2', 60, words('They differ.')))
const main = [{ type: 'mode', sessionId: 's-1' }, start, ...replied, ...answers]
main.push(boundary, again, refused, last)
const web = chain(
  ...[user('Web?'), counted('w1', 10, agent('c3', 'Deeper?'))],
  ...[user([result('c3', 'deep')]), counted('w2', 40, words('Web.'))],
)
const jobs = chain(user('Jobs?'), counted('j1', 20, call('c4', 'Bash', {})))
const session: Record<string, unknown[]> = {
  's-1.jsonl': main,
  's-1/subagents/agent-web.jsonl': web,
  's-1/subagents/agent-deep.jsonl': chain(user('Deep?'), counted('d1', 5, words('Yes.'))),
  's-1/subagents/agent-deep.meta.json': [{ agentType: 'Plan', toolUseId: 'c3' }],
  's-1/subagents/agent-jobs.jsonl': jobs,
}
const sessionRun = (files: Record<string, unknown[]>) => {
  const read = ([path, rows]: [string, unknown[]]) =>
    Object({ name: basename(path), text: rowsOf(rows) })
  return makeRun('cc', 'cc', readSession(Object.entries(files).map(read)), false)
}
const linksOf = ({ parts }: Json) =>
  new Set(parts.map(({ owner, call }: Json) => `${call.id} in ${owner.name}`))

test('a Claude Code session, or an old one in one file: agents opposite their calls', () => {
  const run = sessionRun(session)
  const { lines, requests, leftOut } = run.lanes[0]
  const told = lines.map((it: Json) => it.event ?? `${it.role} ${it.content.length}`)
  // One reply, one message of results, and no dead end.
  const expected = 'user 20|assistant 3|user 2|compacted|user 32|api_error|assistant 1'
  assert.equal(told.join('|'), expected)
  assert.deepEqual([...sizesOf(requests), leftOut.size], [101, 61, 3], 'counted once')
  assert.deepEqual(linksOf(run), new Set(['c1 in main', 'c2 in main', 'c3 in Explore-1']))
  const failed = run.parts.filter(facts.isFailed).map(({ lane }: Json) => lane.id)
  assert.deepEqual(failed, ['jobs'], 'it has no report')
  // What the contexts grew by, each with its last reply: of web, of deep and of jobs.
  assert.equal(run.asOne.at(-1).size, 61 + (41 - 11 + 7) + 7 + 7)
  const old = sessionRun({ 's.jsonl': [...main, ...web, ...jobs] })
  assert.deepEqual(linksOf(old), new Set(['c1 in main', 'c2 in main']))
})

const chromium = findBrowser()
const skip = chromium ? false : 'there is no Chromium; CHROMIUM_PATH can name one'

describe('the page in a browser', { skip, timeout: 60_000 }, () => {
  const folder = fs.mkdtempSync(join(tmpdir(), 'page-'))
  let page: Page
  const write = (path: string, lines: unknown[]) => {
    const file = join(folder, path)
    fs.mkdirSync(dirname(file), { recursive: true })
    fs.writeFileSync(file, rowsOf(lines))
    return file
  }
  const isNow = async (card: string) =>
    assert.equal(await page.text('[aria-current=step] .fold'), card)

  before(async () => {
    page = await openPage(chromium as string, join(folder, 'profile'))
  })
  after(async () => {
    await page?.close()
    fs.rmSync(folder, { recursive: true, force: true, maxRetries: 9, retryDelay: 50 })
  })

  test('every recording opens where its report comes back, and goes to its ends', async () => {
    await page.open('')
    for (const name of folders) {
      const run = recording(name)
      await page.evaluate(`location.hash = '#${name}'`)
      await page.until(`document.title.startsWith('${name} ')`)
      assert.equal(
        await page.text('#count'),
        `${facts.openingOf(run)} / ${run.moments.length}`,
      )
      await page.click('#first')
      assert.equal(await page.count('.card'), 1)
      await page.click('#last')
      assert.equal(await page.count('.card'), Math.min(150, run.moments.length))
      const held = run.lanes.map((it: Json) => `${facts.heldAt(it, it.lines.length)}`)
      const sizes = `Array.from(document.querySelectorAll('#bars li'), (it) => it.dataset.size)`
      assert.deepEqual(await page.evaluate(sizes), held, name)
    }
  })

  test('back and forward, moment by moment, the same cards', async () => {
    await page.open('#09-resume/1')
    const step = '.click(), document.getElementById("stage").innerText'
    const walk = (id: string) =>
      page.evaluate<string[]>(`Array.from({ length: 27 }, () => (${id}${step}))`)
    const forward = await walk('forward')
    assert.deepEqual((await walk('back')).slice(0, -1), forward.slice(0, -1).reverse())
  })

  test('the first view: the report has come back, and the point is told', async () => {
    await page.resize(1280, 720)
    await page.open('')
    const { lanes, asOne } = recording('04-subagent')
    const largest = [lanes[0].requests, asOne].map((it) => sizesOf(it).at(-1))
    const told = largest.map((size) => size.toLocaleString('en-US')).join('.*')
    assert.match(await page.text('#sum'), new RegExp(told))
    await isNow('parent 3')
    const card = await page.boxOf('[aria-current=step]')
    const [panel, player] = [await page.boxOf('#panel'), await page.boxOf('#player')]
    assert(card.top > panel.bottom && card.bottom < player.top, 'in sight')
    assert(panel.bottom + player.height <= 240, `${panel.bottom} + ${player.height}`)
    assert.equal(await page.count('.link.back'), 1)
    assert.equal(await page.count('.plot .of-one'), 2, 'the line, and its name')
  })

  test('an address opens a moment; keys, the list and the search go to others', async () => {
    await page.open('#04-subagent/1')
    for (const step of 'n:parent 2|ArrowRight:sub-1 1|p:parent 2|ArrowLeft:parent 1'.split(
      '|',
    )) {
      await page.key(step.split(':')[0])
      await isNow(step.split(':')[1])
    }
    await page.evaluate(`(() => {
      const jump = document.getElementById('jump')
      jump.value = '15'
      jump.dispatchEvent(new Event('change'))
      document.getElementById('search').focus()
    })()`)
    await isNow('parent 3')
    await page.send('Input.insertText', { text: 'HELLO, UNDEFINED' })
    await page.key('Enter')
    assert.equal(await page.text('#found'), '1 of 1 found')
    await page.open('#no%20such/1')
    assert.match(await page.text('#notices'), /There is no run “no such” here/)
  })

  test('play stops at the end; one switch for the language, kept in the address', async () => {
    await page.open('?lang=zh#04-subagent/17')
    await page.key(' ')
    assert.equal(await page.evaluate(`document.getElementById('play').title`), '暂停')
    await page.until(`document.getElementById('play').title === '播放'`)
    await page.click('#language')
    await page.until(`location.search === '?lang=en'`)
  })

  test('nothing scrolls sideways; from 700 px on the histories are side by side', async () => {
    for (const width of [360, 700, 1400]) {
      await page.resize(width, 900)
      for (const address of ['#10-parallel', '#04-subagent']) {
        await page.open(address)
        await page.until(`document.body.scrollWidth <= ${width}`)
      }
      const left = await page.boxOf('.section:has(.child) .left')
      assert.equal(left.right < (await page.boxOf('.child')).left, width >= 700)
      assert.equal((await page.boxOf('#meter')).height > 0, width < 700)
      const small = `Array.from(document.querySelectorAll('button, select, .run, .card-link'))
        .filter((it) => it.offsetHeight > 0 && Math.min(it.offsetHeight, it.offsetWidth) < 24)
        .map((it) => it.outerHTML)`
      assert.deepEqual(await page.evaluate(small), [], 'targets of 24 pixels')
    }
  })

  test('dark, where it is asked for; no motion for those who ask for none; names for all', async () => {
    const style = (of: string) => `getComputedStyle(document.querySelector('${of}'))`
    await page.prefer('prefers-color-scheme', 'dark')
    await page.open('#04-subagent/5')
    assert.equal(
      await page.evaluate(`${style('body')}.backgroundColor`),
      'rgb(21, 23, 27)',
    )
    await page.key('ArrowRight')
    const motion = `${style('[aria-current=step]')}.animationName`
    assert.equal(await page.evaluate(motion), 'appear')
    await page.prefer('prefers-reduced-motion', 'reduce')
    assert.equal(await page.evaluate(motion), 'none')
    const { nodes } = await page.send('Accessibility.getFullAXTree')
    const roles = /^(button|link|slider|combobox|searchbox|image|heading)$/
    const isNameless = ({ ignored, role, name }: Json) =>
      !ignored && roles.test(role.value) && !name.value.trim()
    assert.deepEqual(nodes.filter(isNameless), [])
  })

  test('a folder that is dropped again takes its own place; files are opened by hand', async () => {
    await page.open('')
    for (const again of ['', ' again']) {
      await page.drop([join(RECORDED, '04-subagent')])
      const said = `Opened 04-subagent (dropped)${again}: parent, sub-1.`
      assert.equal(await page.text('#notices'), said)
    }
    assert.equal(await page.count('.run'), folders.length + 1)
    const input = { expression: `document.getElementById('files')` }
    const { objectId } = (await page.send('Runtime.evaluate', input)).result
    const files = [join(RECORDED, '02-tool-use', 'parent.log')]
    await page.send('DOM.setFileInputFiles', { objectId, files })
    await page.until(`document.title.startsWith('02-tool-use (dropped)')`)
  })

  test('a compaction is shown as what it is', async () => {
    await page.open('')
    await page.drop(compacted.map((lines, i) => write(`c/${i}.log`, lines)))
    await page.click('#last')
    assert.equal(await page.count('.card.left-out'), 7)
    assert.equal(await page.count('.child > .child.inner'), 2)
    assert.match(await page.text('.child.inner'), /sums up the history of sub-1/)
  })

  test('a Claude Code session is dropped as a folder', async () => {
    for (const [path, rows] of Object.entries(session)) write(`cc/${path}`, rows)
    await page.open('')
    await page.drop([join(folder, 'cc')])
    await page.click('#last')
    assert.match(await page.text('#notices'), /^Opened session-s-1 \(dropped\): main, /)
    assert.match(await page.text('#origin'), /It can hold secrets/)
    assert.equal(await page.text('.plot .axis'), 'tokens')
    assert.equal(await page.count('.child > .child.inner'), 1, 'an agent of an agent')
    assert.equal(await page.count('.outcome.failed'), 1)
  })

  test('what is no log is refused in words; a broken one is shown as it is', async () => {
    const deep = `{"event":"deep","of":${'['.repeat(50_000)}${']'.repeat(50_000)}}`
    const broken = [head('parent', 'broken'), user('one'), '{"torn', '', 'null', deep]
    await page.open('#04-subagent/3')
    await page.drop([write('note.txt', ['hello']), write('empty.log', [])])
    assert.match(
      await page.text('#notices'),
      /note\.txt is no log: its first line .*empty\.log is empty/s,
    )
    assert.equal(await page.text('#count'), '3 / 18', 'and the page goes on')
    await page.drop([write('broken.log', [...broken, user('二')])])
    assert.match(await page.text('#notices'), /Broken lines in broken\.log: 2\./)
    await page.click('#last')
    assert.equal(await page.count('.card.broken'), 2)
  })

  test('a hostile one stays text', async () => {
    const evil = '<img src=x onerror="window.ran=1"><script>window.ran=1</script>'
    const odd = [null, 5, evil, { type: evil }, { type: 'text', text: { a: evil } }]
    const calls = [call(evil, evil, { [evil]: evil }), call('x', 'task', null)]
    const lines = [
      { ...head(evil, evil), note: evil, model: [evil], tools: [{ name: evil }, null] },
      ...[user(evil), user(odd), reply(...calls, { type: 'image' })],
      user([result(evil, evil), result('x', odd, { is_error: true }), result('y', null)]),
      { level: evil, event: 'constructor', status: { a: 1 }, error: evil, more: evil },
      { event: 'compacted', replaced: [1, -1, 'x', null, 1e9], by: evil },
      '{"role":"user","content":[{"input":{"__proto__":{"polluted":1}}}]}',
    ]
    const strange = { parentUuid: {}, toolUseResult: 7, message: reply(...odd) }
    const rows = [row(undefined, user(evil)), { ...row(undefined, reply()), ...strange }]
    for (const path of [write('evil.log', lines), write(`evil/s.jsonl`, rows)]) {
      await page.open('')
      await page.drop([path])
      await page.click('#fold')
      await page.click('#last')
      assert((await page.text('#stage')).includes(evil))
      assert.equal(await page.count('#stage img, main script, [onerror]'), 0)
    }
    assert(!(await page.evaluate('window.ran ?? Object.prototype.polluted')))
  })

  test('10,000 messages stay usable', async () => {
    const lines: unknown[] = [head('parent', 'huge'), user('go')]
    for (let i = 1; i < 5000; i++) {
      lines.push(reply(call(`t${i}`, 'bash', { command: `echo ${i}` })))
      lines.push(user([result(`t${i}`, `line ${i}\n`.repeat(i % 90))]))
    }
    await page.open('')
    await page.drop([write('huge.log', [...lines, reply(words('x'.repeat(3_000_000)))])])
    assert.equal(await page.text('#count'), '10,000 / 10,000')
    assert((await page.count('*')) < 6000, 'so many elements, whatever the log')
    await page.click('#earlier')
    assert.equal(await page.count('.card'), 300)
  })

  test('no request left the page, the console stayed empty; markup is refused', async () => {
    const told = (pattern: RegExp) =>
      page.events.filter(({ method }) => pattern.test(method)).map(({ params }) => params)
    const asked = told(/requestWillBeSent$/).map(({ request }) => request.url)
    const own = new RegExp(`^(data:|about:|${pathToFileURL(PAGE).href})`)
    assert(
      asked.every((url) => own.test(url)),
      asked.join('\n'),
    )
    assert.deepEqual(told(/exceptionThrown|entryAdded|consoleAPICalled/), [])
    const markup = `document.body.insertAdjacentHTML('beforeend', '<b></b>')`
    await assert.rejects(page.evaluate(markup), /TrustedHTML/, 'whoever makes it')
  })
})
