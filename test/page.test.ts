/** The page in a real browser: headless Chromium, driven over its DevTools protocol. */
import assert from 'node:assert/strict'
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import {
  accessSync,
  constants,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  writeFileSync,
} from 'node:fs'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { tmpdir } from 'node:os'
import { delimiter, dirname, join } from 'node:path'
import process from 'node:process'
import type { Readable, Writable } from 'node:stream'
import { after, before, describe, test } from 'node:test'
import { setTimeout as sleep } from 'node:timers/promises'
import { pathToFileURL } from 'node:url'
import {
  type LaneFile,
  readFolder,
  requestSizes,
} from '../steps/support/base/lane-file.ts'
import { renderComparison } from '../steps/support/cli/compare.ts'
import { currentPage, PAGE } from './page-data.ts'

// biome-ignore lint/suspicious/noExplicitAny: the protocol's and the page's own shapes
type Json = Record<string, any>

const RECORDED = join(dirname(import.meta.dirname), 'logs', 'recorded')
const html = readFileSync(PAGE, 'utf8')
const names = readdirSync(RECORDED).sort()
const runs = new Map(names.map((name) => [name, readFolder(join(RECORDED, name))]))
const countLines = (lanes: LaneFile[]) =>
  lanes.reduce((sum, { lines }) => sum + lines.length, 0)

test('the page holds the recordings as they are, and the hashes of its own code', () => {
  assert(currentPage(html) === html, 'npm run page brings docs/index.html up to date')
})

test('the page fetches nothing, and makes no markup of text', () => {
  const code = html.replace(/<script type="application\/jsonl"[\s\S]*?<\/script>/g, '')
  assert.doesNotMatch(code, /innerHTML|outerHTML|insertAdjacent|document\.write|eval\(/)
  assert.doesNotMatch(code, /<(link|script|img|iframe)\b[^>]*\b(src|href)="(?!data:)/)
  const addresses = code.match(/https?:\/\/[^'" ]+/g)
  assert.deepEqual([...new Set(addresses)], ['http://www.w3.org/2000/svg'])
})

test('every label is there in English and in Chinese', () => {
  const source = /\nconst WORDS = (\{[\s\S]*?\n\})\n/.exec(html)?.[1]
  const { en, zh } = new Function(`return ${source}`)()
  const shapeOf = (words: Json | string): unknown =>
    typeof words === 'string'
      ? (words.match(/\{\w+\}/g) ?? []).sort()
      : Object.entries(words).map(([key, value]) => [key, shapeOf(value)])
  assert.deepEqual(shapeOf(zh), shapeOf(en))
  assert.doesNotMatch(JSON.stringify(en).replace(en.language, ''), /[\u4e00-\u9fff]/)
})

const chromium = findBrowser()
const skip = chromium ? false : 'there is no Chromium; CHROMIUM_PATH can name one'

describe('the page in a browser', { skip, timeout: 120_000 }, () => {
  const folder = mkdtempSync(join(tmpdir(), 'page-'))
  let page: Page

  before(async () => {
    page = await openPage(chromium as string, join(folder, 'profile'))
  })
  after(async () => {
    await page?.close()
    rmSync(folder, { recursive: true, force: true, maxRetries: 9, retryDelay: 50 })
  })

  for (const [name, lanes] of runs) {
    test(`${name}: every moment, back and forward, in the files' sizes`, async () => {
      const count = countLines(lanes)
      await page.open(`?behind=#${name}`)
      assert.equal(await page.text('#count'), `${count} / ${count}`)
      assert((await page.text('#origin')).includes(lanes[0].header.note))
      assert.deepEqual(await page.plotted(), sizesOf(lanes))
      const all = await page.cards()
      for (const { name, messages } of lanes) {
        const own = all.filter((title) => title.startsWith(`${name} `))
        const expected = messages.map((_, i) => `${name} ${i + 1}`)
        assert.deepEqual(own, expected)
      }
      const back = await page.walk('back', count - 1)
      assert.deepEqual(await page.cards(), ['parent 1'])
      const forward = await page.walk('forward', count - 1)
      assert.deepEqual(await page.cards(), all)
      const titles = (steps: Step[]) => steps.slice(0, -1).map(({ title }) => title)
      assert.deepEqual(titles(forward).reverse(), titles(back))
      for (const [lane, sizes] of Object.entries(sizesOf(lanes))) {
        const asked = forward.flatMap(({ asks }) => asks[lane] ?? [])
        assert.deepEqual(new Set(asked), new Set(sizes), lane)
      }
    })

    test(`${name}: what came back looks like its outcome`, async () => {
      const outcomes = outcomesOf(lanes[0])
      const failed = outcomes.filter(({ is_error }) => is_error)
      await page.show(name)
      assert.equal(await page.count('.outcome'), outcomes.length)
      assert.equal(await page.count('.outcome.failed .tag'), failed.length)
      assert.equal(await page.count('.link.back'), outcomes.length)
      assert.equal(await page.count('.link.back.failed'), failed.length)
    })
  }

  test('the parent up to the call, then the child, then the parent', async () => {
    await page.open('#04-subagent')
    const cards = await page.walk('back', 17)
    const order = cards.reverse().map(({ title }) => title.replace(/ \d+$/, ''))
    assert.deepEqual(order, [
      'parent',
      'parent',
      ...Array(12).fill('sub-1'),
      'parent',
      'parent',
      'parent',
    ])
    assert.equal(await page.text('#moment'), 'parent 1, user: the prompt')
  })

  test('compared with step 02: the numbers are those of npm run view 02 04', async () => {
    const [before, now] = ['02-tool-use', '04-subagent'].map(
      (name) => runs.get(name) ?? [],
    )
    const lines = renderComparison(before, now, 120)
    const told = (title: string) =>
      lines.flatMap(
        (line) =>
          (line.startsWith(`  ${title} `) ? line.match(/\d[\d,]+|\d/g)?.at(-1) : []) ??
          [],
      )
    await page.open('#04-subagent')
    const rows = await page.evaluate<string[][]>(
      `Array.from(document.querySelectorAll('tbody tr'), ({ children }) =>
        Array.from(children, (cell) => cell.textContent))`,
    )
    assert.deepEqual(
      rows.map(([title]) => title),
      [
        '04-subagent parent',
        '04-subagent sub-1',
        '04-subagent all lanes',
        '02-tool-use parent',
      ],
    )
    for (const [title, messages, , largest, all] of rows) {
      assert.deepEqual([messages, largest, all], told(title.replace(/-\S+/, '')))
    }
    const shares = lines.join(' ').match(/\d+ %/g)
    assert.deepEqual((await page.text('#numbers')).match(/\d+ %/g), shares)
    assert.equal(await page.count('.plot .behind .dot'), requestSizes(before[0]).length)
  })

  test('the sentence says what stays in the child, and what comes back', async () => {
    const [parent, child] = runs.get('04-subagent') ?? []
    const [before] = runs.get('02-tool-use') ?? []
    const sum = (lane: LaneFile) => requestSizes(lane).reduce((a, b) => a + b)
    const [{ content }] = parent.messages[2].content as Json[]
    await page.open('#04-subagent')
    const said = (await page.text('#sum')).replaceAll(',', '')
    const numbers = [child.messages.length, requestSizes(child).at(-1), content.length]
    assert.match(
      said,
      new RegExp([...numbers, sum(parent), sum(before)].join('\\b.*\\b')),
    )
  })

  test('an address opens a moment, and each step writes one', async () => {
    await page.open('#04-subagent/7')
    assert.equal(await page.text('[aria-current=step] .card-name'), 'sub-1 5')
    assert.equal(await page.text('#count'), '7 / 18')
    await page.key('ArrowRight')
    await page.key('ArrowRight')
    await page.key('ArrowLeft')
    assert.equal(await page.text('#moment'), 'sub-1 6, assistant: calls bash')
    await page.until('location.hash', '#04-subagent/8')
    await page.evaluate(`location.hash = '#02-tool-use/3'`)
    assert.equal(await page.text('[aria-current=page]'), '02-tool-use')
    assert.equal(await page.text('#count'), '3 / 12')
    await page.open('#04-subagent/999')
    assert.equal(await page.text('#count'), '18 / 18')
    await page.open('#no%20such/1')
    assert.match(await page.text('#notices'), /There is no run “no such” here/)
  })

  test('one switch between English and Chinese, kept in the address', async () => {
    await page.open('?lang=zh#04-subagent/15')
    assert.equal(await page.evaluate('document.documentElement.lang'), 'zh-Hans')
    assert.equal(await page.text('#moment'), 'parent 3, user: sub-1 带回来的内容')
    await page.evaluate(`document.getElementById('language').click()`)
    assert.equal(await page.text('h1'), 'Two histories, side by side')
    assert.equal(await page.text('#count'), '15 / 18')
    await page.until('location.search + location.hash', '?lang=en#04-subagent/15')
  })

  test('play goes on by itself, and stops at the end', async () => {
    await page.open('#04-subagent/17')
    await page.key(' ')
    assert.equal(await page.attribute('#play', 'aria-label'), 'Pause')
    await page.until(`document.getElementById('play').title`, 'Play')
    assert.equal(await page.text('#count'), '18 / 18')
  })

  test('a press on the plot goes to that moment, and so does the slider', async () => {
    await page.open('#04-subagent/1')
    const [x, y] = await page.centreOf('.plot > .dot[data-lane="sub-1"]')
    const button = { button: 'left', buttons: 1, clickCount: 1, x, y }
    await page.send('Input.dispatchMouseEvent', { type: 'mousePressed', ...button })
    await page.send('Input.dispatchMouseEvent', { type: 'mouseReleased', ...button })
    assert.equal(await page.text('[aria-current=step] .card-name'), 'sub-1 2')
    await page.evaluate(`document.getElementById('slider').focus()`)
    await page.key('ArrowRight')
    assert.equal(await page.text('[aria-current=step] .card-name'), 'sub-1 3')
  })

  test('lines lead from the call to the child, and from its last text back', async () => {
    await page.open('#04-subagent')
    const ends = await page.evaluate<Json[]>(`Array.from(
      document.querySelectorAll('.link'),
      (path) => {
        const origin = document.getElementById('stage').getBoundingClientRect()
        const at = (length) => {
          const { x, y } = path.getPointAtLength(length)
          return { x: x + origin.x, y: y + origin.y }
        }
        return { kind: path.getAttribute('class'), from: at(0), to: at(1e9) }
      },
    )`)
    const [call, text, result] = await Promise.all(
      ['#m2', '#m14', '#m15'].map(page.boxOf),
    )
    const head = await page.boxOf('.child .lane-head')
    const [out, back] = ends
    assert.deepEqual(
      ends.map(({ kind }) => kind),
      ['link', 'link back'],
    )
    const isNear = (a: number, b: number) =>
      assert(Math.abs(a - b) < 12, `${a}, not ${b}`)
    isNear(out.from.x, call.right)
    isNear(out.to.x, head.left)
    isNear(out.to.y, head.top + 12)
    isNear(back.from.y, text.bottom)
    isNear(back.to.x, result.right)
    assert(back.to.y > result.top && back.to.y < result.bottom)
    assert(head.left > call.right && Math.abs(head.top - call.top) < 3, 'opposite')
    assert(result.top > text.bottom, 'below')
  })

  test('an outcome that is not completed looks different at a glance', async () => {
    const look = (selector: string) =>
      page.evaluate<string[]>(`(() => {
        const node = document.querySelector('${selector}')
        const { borderStyle, borderColor } = getComputedStyle(node)
        return [borderStyle, borderColor]
      })()`)
    await page.show('08-failure')
    const failed = await look('.outcome.failed')
    await page.show('04-subagent')
    const fine = await look('.outcome')
    assert.deepEqual([failed[0], fine[0]], ['dashed', 'solid'])
    assert.notEqual(failed[1], fine[1])
  })

  describe('dropped logs', () => {
    const write = (path: string, lines: unknown[]) => {
      const file = join(folder, path)
      mkdirSync(dirname(file), { recursive: true })
      const rows = lines.map((it) => (typeof it === 'string' ? it : JSON.stringify(it)))
      writeFileSync(file, `${rows.join('\n')}\n`)
      return file
    }

    test('children at once, side by side; one resumed; events; tokens', async () => {
      const files = parallelRun(write)
      await page.open('')
      await page.drop(files)
      const lanes = readFolder(dirname(files[0]))
      assert.match(
        await page.text('#notices'),
        /^Opened 10-at-once \(dropped\): parent, sub-1, sub-2, sub-10\.$/,
      )
      assert.deepEqual(await page.plotted(), sizesOf(lanes))
      const columns =
        'parent 1, parent 2, sub-1 1, sub-1 2, sub-1 3, sub-1 4, sub-2 1, sub-2 2, ' +
        'sub-10 1, sub-10, parent 3, parent 4, sub-2 3, sub-2, sub-2 4, ' +
        'parent 5, parent 6'
      assert.equal((await page.cards()).join(', '), columns)
      const walked = (await page.walk('back', 16)).map(({ title }) => title).reverse()
      const inTurn =
        'sub-1 1, sub-2 1, sub-10 1, sub-1 2, sub-2 2, sub-10, sub-1 3, sub-1 4'
      assert.equal(walked.slice(2, 10).join(', '), inTurn)
      await page.walk('forward', 16)
      // At one moment: the page may still be scrolling.
      const tops = await page.evaluate<number[]>(
        `[1, 2, 3].map((n) => document.querySelector('.child:nth-child(' + n + ')'))
          .map((child) => child.getBoundingClientRect().top)`,
      )
      assert.equal(new Set(tops).size, 1)
      assert.equal(await page.count('.outcome'), 4)
      assert.equal(await page.count('.outcome.failed'), 1)
      assert.equal(await page.count('.card.event'), 2)
      assert.match(await page.text('#numbers'), /tokens in/)
      assert.match(await page.text('#stage'), /sub-2 · resumed: /)
      assert.match(await page.text('.card.event'), /no_answer/)
    })

    test('a folder, and the files that are opened by hand', async () => {
      await page.open('')
      await page.drop([join(RECORDED, '04-subagent')])
      assert.match(
        await page.text('#notices'),
        /Opened 04-subagent \(dropped\): parent, sub-1/,
      )
      await page.choose([join(RECORDED, '02-tool-use', 'parent.log')])
      assert.match(
        await page.text('#notices'),
        /Opened 02-tool-use \(dropped\): parent\./,
      )
      assert.deepEqual(await page.plotted(), sizesOf(runs.get('02-tool-use') ?? []))
      await page.drop([join(RECORDED, '04-subagent', 'sub-1.log')])
      assert.equal(await page.text('#count'), '12 / 12')
    })

    test('what is no log is refused in words, and the page goes on', async () => {
      const files = [
        write('note.txt', ['hello']),
        write('other.log', ['{"role":"user","content":"no header"}']),
        write('empty.log', []),
        write('good.log', [header('parent', 'good'), user('hello')]),
      ]
      writeFileSync(
        join(folder, 'picture.png'),
        Buffer.from([0x89, 0x50, 0, 255, 10, 13]),
      )
      await page.open('#04-subagent/3')
      await page.drop(files.slice(0, 3).concat(join(folder, 'picture.png')))
      const said = (await page.text('#notices')).split('\n')
      assert.equal(said.length, 4)
      for (const name of ['note.txt', 'other.log', 'picture.png']) {
        assert(
          said.some((line) => line.startsWith(`${name} is no log: its first line`)),
          name,
        )
      }
      assert(said.includes('empty.log is empty: that is no log.'))
      assert.equal(await page.text('#count'), '3 / 18')
      await page.drop(files)
      assert.equal(await page.text('[aria-current=page]'), 'good (dropped)')
      assert.equal((await page.text('#notices')).split('\n').length, 4)
    })

    test('a broken one is shown as far as it goes', async () => {
      const deep = `{"event":"deep","of":${'['.repeat(50_000)}${']'.repeat(50_000)}}`
      const lines = [header('parent', 'broken'), user('one'), '{"torn', '', 'null', deep]
      await page.open('')
      await page.drop([write('broken.log', [...lines, user('二'), '{"role":"assist'])])
      assert.match(await page.text('#notices'), /Broken lines in broken\.log: 3\./)
      const cards = 'parent 1, parent, parent, parent, parent 2, parent'
      assert.equal((await page.cards()).join(', '), cards)
      assert.equal(await page.count('.card.broken'), 3)
      assert.match(await page.text('.card.broken'), /Line 3 is neither a message nor/)
    })

    test('a hostile one stays text', async () => {
      await page.open('')
      const evil = '<img src=x onerror="window.ran=1"><script>window.ran=1</script>'
      await page.drop(hostileRun(write, evil))
      assert((await page.text('#stage')).includes(evil))
      for (const field of ['#origin', '#runs', '#notices', '#numbers', '#legend']) {
        assert((await page.text(field)).includes('<img src=x'), field)
      }
      await page.walk('back', 5)
      await page.walk('forward', 5)
      const made =
        '#stage img, #stage script, main script, [onerror], [href^="javascript"]'
      assert.equal(await page.count(made), 0)
      assert.equal(await page.evaluate('window.ran'), undefined)
      assert.equal(await page.evaluate('Object.prototype.polluted'), undefined)
      const forbidden = await page.evaluate(`(() => {
        try {
          document.body.insertAdjacentHTML('beforeend', '<b></b>')
        } catch (error) {
          return error.name
        }
      })()`)
      assert.equal(forbidden, 'TypeError', 'markup is refused, whoever makes it')
      page.forget(/TrustedHTML/)
    })

    test('10,000 messages stay usable', async () => {
      const lines: unknown[] = [header('parent', 'huge'), user('go')]
      for (let i = 1; i < 5000; i++) {
        lines.push(assistant(call(`t${i}`, 'bash', { command: `echo ${i}` })))
        lines.push(user([result(`t${i}`, `line ${i}\n`.repeat(i % 90))]))
      }
      lines.push(assistant({ type: 'text', text: 'x'.repeat(3_000_000) }))
      await page.open('')
      const start = performance.now()
      await page.drop([write('huge.log', lines)])
      assert.equal(await page.text('#count'), '10,000 / 10,000')
      const opened = Math.round(performance.now() - start)
      assert(opened < 5000, `opened in ${opened} ms`)
      const buttons = ['back', 'back', 'first', 'forward', 'last', 'back', 'forward']
      const times = await page.evaluate<number[]>(
        `${JSON.stringify(buttons)}.map((id) => {
          const start = performance.now()
          document.getElementById(id).click()
          document.body.offsetHeight // not before it is laid out
          return Math.round(performance.now() - start)
        })`,
      )
      const [median] = times.toSorted((a, b) => a - b).slice(3)
      assert(median < 200, `steps took ${times} ms`)
      assert((await page.count('*')) < 8000)
      await page.evaluate(`document.getElementById('earlier').click()`)
      assert.equal((await page.cards()).length, 300)
    })
  })

  test('from 360 px on nothing scrolls sideways; the moment is in sight', async () => {
    await page.open('#01-agent-loop')
    for (const [width, height] of [
      [360, 740],
      [768, 1024],
      [1280, 800],
      [1920, 1080],
    ]) {
      await page.resize(width, height)
      for (const address of ['03-todo-write', '10-parallel', '04-subagent/15']) {
        await page.show(address)
        const wide = await page.evaluate<number>('document.body.scrollWidth')
        assert(wide <= width, `${address} is ${wide} px wide at ${width} px`)
      }
      const { top, bottom } = await page.boxOf('#m15')
      const player = await page.boxOf('.player')
      const panel = await page.boxOf('#panel')
      assert(bottom <= player.top + 1, `above the player, at ${width} px`)
      assert(top >= (width > 859 ? panel.bottom : 0), `below the panel, at ${width} px`)
    }
    await page.resize(1280, 900)
  })

  test('dark and light, and no motion for those who ask for none', async () => {
    const colours = []
    for (const scheme of ['light', 'dark']) {
      await page.prefer('prefers-color-scheme', scheme)
      await page.open('#04-subagent/5')
      const [text, paper] = await page.evaluate<string[]>(`(() => {
        const { color, backgroundColor } = getComputedStyle(document.body)
        return [color, backgroundColor]
      })()`)
      colours.push(paper)
      assert(contrast(text, paper) > 7, `${text} on ${paper}`)
    }
    assert.notEqual(colours[0], colours[1])
    const now = `document.querySelector('[aria-current=step]')`
    const animation = `getComputedStyle(${now}).animationName`
    assert.equal(await page.evaluate(animation), 'none', 'not at the start')
    await page.key('ArrowRight')
    assert.equal(await page.evaluate(animation), 'appear')
    await page.prefer('prefers-reduced-motion', 'reduce')
    assert.equal(await page.evaluate(animation), 'none')
    await page.prefer('', '')
  })

  test('keys and a screen reader reach everything by name', async () => {
    await page.open('#04-subagent/7')
    const { nodes } = await page.send('Accessibility.getFullAXTree')
    const roles = ['button', 'link', 'slider', 'combobox', 'img', 'heading']
    const named = nodes.filter(
      (node: Json) => !node.ignored && roles.includes(node.role.value),
    )
    for (const { role, name } of named)
      assert(name.value.trim(), `a ${role.value} without a name`)
    const has = (role: string, name: string) =>
      assert(
        named.some((it: Json) => it.role.value === role && it.name.value === name),
        name,
      )
    has('button', 'One message forward')
    has('slider', 'Moment of the run')
    has('combobox', 'compared with')
    assert.equal(await page.attribute('#moment', 'aria-live'), 'polite')
    assert.equal(await page.attribute('#slider', 'aria-valuetext'), 'message 7 of 18')
    await page.key('Tab')
    await page.key('Tab')
    const outline = await page.evaluate(
      'getComputedStyle(document.activeElement).outlineStyle',
    )
    assert.equal(outline, 'solid')
  })

  test('from a static host it is one file', async () => {
    const asked: string[] = []
    const server = createServer(({ url = '' }, response) => {
      asked.push(url)
      response.setHeader('content-type', 'text/html')
      response.end(html)
    })
    await once(server.listen(0, '127.0.0.1'), 'listening')
    const { port } = server.address() as AddressInfo
    await page.go(`http://127.0.0.1:${port}/docs/#04-subagent/7`)
    assert.equal(await page.text('#count'), '7 / 18')
    await page.drop([join(RECORDED, '04-subagent')])
    assert.match(await page.text('#notices'), /Opened 04-subagent/)
    assert.deepEqual(asked, ['/docs/'])
    server.close()
    server.closeAllConnections()
  })

  test('in all this no request left the page, and the console stayed empty', () => {
    assert.deepEqual(
      page.requests().filter((url) => !/^(file|data|http:\/\/127)/.test(url)),
      [],
    )
    const files = page.requests().filter((url) => url.startsWith('file:'))
    assert.deepEqual(
      [...new Set(files.map((url) => url.replace(/[?#].*/, '')))],
      [pathToFileURL(PAGE).href],
    )
    assert.deepEqual(page.errors(), [])
  })
})

const sizesOf = (lanes: LaneFile[]) =>
  Object.fromEntries(lanes.map((lane) => [lane.name, requestSizes(lane)]))

/** The results of a parent's task calls. */
function outcomesOf({ messages }: LaneFile): Json[] {
  const blocks = messages.flatMap(({ content }) => content as Json[])
  const isTask = (id: string) =>
    blocks.some(
      (block) => block.type === 'tool_use' && block.name === 'task' && block.id === id,
    )
  return blocks.filter(
    (block) => block.type === 'tool_result' && isTask(block.tool_use_id),
  )
}

/** The contrast of two colours (`rgb(1, 2, 3)`), from 1 to 21, as WCAG counts it. */
function contrast(...colours: string[]): number {
  const lights = colours.map((colour) => {
    const [r, g, b] = (colour.match(/\d+/g) ?? []).map((part) => {
      const c = Number(part) / 255
      return c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4
    })
    return 0.2126 * r + 0.7152 * g + 0.0722 * b
  })
  return (Math.max(...lights) + 0.05) / (Math.min(...lights) + 0.05)
}

/* Lines of lanes, and runs made of them. */

type Write = (path: string, lines: unknown[]) => string
const header = (lane: string, step: string) => {
  const tools = [{ name: 'bash', description: 'Runs.' }]
  return {
    level: 'info',
    step,
    lane,
    mode: 'live',
    model: 'some-model',
    system: 'You.',
    tools,
  }
}
const user = (content: unknown) => ({ level: 'info', role: 'user', content })
const assistant = (...content: unknown[]) => {
  const usage = { input_tokens: 100, output_tokens: 20 }
  return { level: 'info', role: 'assistant', content, stop_reason: 'end_turn', usage }
}
const call = (id: string, name: string, input: unknown) => ({
  type: 'tool_use',
  id,
  name,
  input,
})
const result = (id: string, content: unknown, more = {}) => {
  return { type: 'tool_result', tool_use_id: id, content, ...more }
}
const words = (text: string) => ({ type: 'text', text })

/** Three children at once, of which one is stopped; another is resumed afterwards. */
function parallelRun(write: Write): string[] {
  const step = '10-at-once'
  const pieces = [1, 2, 10].map((n) =>
    call(`tool_${n}`, 'task', { prompt: `Piece ${n}` }),
  )
  const back = [1, 2, 10].map((n) =>
    result(`tool_${n}`, `${n}`, n === 10 ? { is_error: true } : {}),
  )
  const child = (n: number) => [header(`sub-${n}`, step), user(`Piece ${n}`)]
  return [
    write('at-once/parent.log', [
      header('parent', step),
      user('Do three things.'),
      assistant({ type: 'thinking', thinking: 'three' }, ...pieces),
      user(back),
      assistant(call('tool_11', 'task', { prompt: '继续', resume: 'sub-2' })),
      user([result('tool_11', [words('完成了。')])]),
      assistant(words('全部完成。')),
    ]),
    write('at-once/sub-1.log', [
      ...child(1),
      assistant(call('tool_1', 'bash', { command: 'ls' })),
      user([result('tool_1', 'a')]),
      assistant(words('1')),
    ]),
    write('at-once/sub-2.log', [
      ...child(2),
      assistant(words('2')),
      user('继续\n\n(Files may have changed.)'),
      {
        level: 'error',
        event: 'api_error',
        status: 529,
        error: { type: 'overloaded_error' },
      },
      assistant(words('完成了。')),
    ]),
    write('at-once/sub-10.log', [...child(10), { level: 'warn', event: 'no_answer' }]),
  ]
}

/** Markup wherever a log can hold text, and shapes that no step writes. */
function hostileRun(write: Write, evil: string): string[] {
  const odd = [
    null,
    5,
    evil,
    { type: evil },
    { type: 'text', text: { a: evil } },
    { type: 'image' },
  ]
  return [
    write('hostile/parent.log', [
      {
        ...header(evil, evil),
        note: evil,
        model: { a: evil },
        system: evil,
        tools: [{ name: evil }, null],
      },
      user(evil),
      user(odd),
      assistant(
        call(evil, evil, { [evil]: evil }),
        call('x', 'task', null),
        `{"__proto__":{"polluted":1}}`,
      ),
      user([
        result(evil, evil),
        result('x', odd, { is_error: true }),
        result('none', null),
      ]),
      { level: evil, event: evil, status: { a: 1 }, error: evil, more: evil },
      '{"role":"user","content":[{"input":{"__proto__":{"polluted":1}}}]}',
    ]),
  ]
}

/* The browser. */

const KEYS = { ArrowLeft: 37, ArrowRight: 39, Tab: 9, ' ': 32 }

/** The one that CHROMIUM_PATH names, or else one that is there under a usual name. */
function findBrowser(): string | undefined {
  const usual = 'chromium chromium-browser google-chrome google-chrome-stable chrome'
  const folders = ['/usr/bin', ...(process.env.PATH ?? '').split(delimiter)]
  const places = usual.split(' ').flatMap((name) => folders.map((it) => join(it, name)))
  const { CHROMIUM_PATH } = process.env
  return (CHROMIUM_PATH ? [CHROMIUM_PATH] : places).find((path) => {
    try {
      accessSync(path, constants.X_OK)
      return true
    } catch {
      return false // not here: the next one
    }
  })
}

/** A moment, and the sizes of the requests that came next in the one before. */
type Step = { title: string; asks: Record<string, number> }

type Page = Awaited<ReturnType<typeof openPage>>

/** Starts a browser with one page; whatever is wrong on its console is kept. */
async function openPage(path: string, profile: string) {
  const flags =
    'headless no-sandbox disable-gpu disable-quic no-first-run disable-sync lang=en ' +
    'disable-background-networking disable-component-update disable-dev-shm-usage ' +
    'window-size=1280,900 remote-debugging-pipe'
  const args = [
    ...flags.split(' ').map((flag) => `--${flag}`),
    `--user-data-dir=${profile}`,
  ]
  const browser = spawn(path, [...args, 'about:blank'], {
    stdio: ['ignore', 'ignore', 'ignore', 'pipe', 'pipe'],
    detached: true, // a group of its own, which ends when this pipe does
  })
  const ended = once(browser, 'close')
  const [, , , input, output] = browser.stdio as unknown as [
    null,
    null,
    null,
    Writable,
    Readable,
  ]
  const waiting = new Map<number, (message: Json) => void>()
  const events: Json[] = []
  const listeners = new Set<(event: Json) => void>()
  let rest = ''
  output.setEncoding('utf8').on('data', (chunk: string) => {
    const messages = (rest + chunk).split('\0')
    rest = messages.pop() ?? ''
    for (const message of messages.map((text) => JSON.parse(text) as Json)) {
      waiting.get(message.id)?.(message)
      if (message.method) events.push(message)
      for (const listener of listeners) listener(message)
    }
  })
  let id = 0
  const ask = async (method: string, params: Json, sessionId?: string) => {
    id += 1
    input.write(`${JSON.stringify({ id, method, params, sessionId })}\0`)
    const answer = new Promise<Json>((done) => waiting.set(id, done))
    const gone = ended.then(() => ({ error: { message: 'the browser ended' } }) as Json)
    const { result, error } = await Promise.race([answer, gone])
    if (error) throw new Error(`${method}: ${error.message}`)
    return result
  }
  const { targetInfos } = await ask('Target.getTargets', {})
  const { targetId } = targetInfos.find(({ type }: Json) => type === 'page')
  const { sessionId } = await ask('Target.attachToTarget', { targetId, flatten: true })
  const send = (method: string, params: Json = {}) => ask(method, params, sessionId)
  for (const part of ['Page', 'Runtime', 'Log', 'Network']) await send(`${part}.enable`)

  const loaded = () =>
    new Promise<void>((done) => {
      const listener = ({ method }: Json) => {
        if (method !== 'Page.loadEventFired') return
        listeners.delete(listener)
        done()
      }
      listeners.add(listener)
    })
  const go = async (url: string) => {
    // By way of an empty page, so that it is loaded even where only the hash differs.
    for (const next of ['about:blank', url]) {
      const isLoaded = loaded()
      await send('Page.navigate', { url: next })
      await isLoaded
    }
  }
  const evaluate = async <T = unknown>(expression: string): Promise<T> => {
    const given = { expression, awaitPromise: true, returnByValue: true }
    const { result, exceptionDetails } = await send('Runtime.evaluate', given)
    assert(!exceptionDetails, exceptionDetails?.exception?.description)
    return result.value
  }
  const url = pathToFileURL(PAGE).href
  /** Opens the page from the disk; in English, unless the address says otherwise. */
  const open = (address: string) =>
    go(url + (address.startsWith('?') ? address : `?lang=en${address}`))
  const on = (selector: string, property: string) =>
    evaluate(`document.querySelector(${JSON.stringify(selector)})${property}`)
  const boxOf = (selector: string) =>
    on(selector, '.getBoundingClientRect().toJSON()') as Promise<Json>
  /** Waits, five seconds at most, until an expression has a value. */
  const until = async (expression: string, value: unknown) => {
    let now: unknown
    for (let tries = 0; tries < 200 && now !== value; tries++) {
      if (tries > 0) await sleep(25)
      now = await evaluate(expression)
    }
    assert.equal(now, value)
  }
  /** The page says something about all files at once, when it has read them. */
  const noticed = () =>
    until(`document.getElementById('notices').childElementCount > 0`, true)
  const forgetNotices = () => on('#notices', '.replaceChildren()')

  return {
    send,
    evaluate,
    until,
    go,
    boxOf,
    open,
    text: (selector: string) => on(selector, '.innerText') as Promise<string>,
    attribute: (selector: string, name: string) =>
      on(selector, `.getAttribute('${name}')`),
    count: (selector: string) =>
      evaluate<number>(`document.querySelectorAll(${JSON.stringify(selector)}).length`),
    cards: () =>
      evaluate<string[]>(
        `Array.from(document.querySelectorAll('.card-name'), (it) => it.textContent)`,
      ),
    /** Another run or moment, without loading the page again. */
    show: async (address: string) => {
      const hash = `#${address}`
      const at = await evaluate<string>('location.href')
      if (!at.startsWith(url)) return open(hash)
      if (at.endsWith(hash)) return
      await evaluate(`new Promise((done) => {
        addEventListener('hashchange', () => done(), { once: true })
        location.hash = '${hash}'
      })`)
    },
    /** Presses a button so many times: the moments' cards, and what the lanes ask. */
    walk: (button: string, times: number) =>
      evaluate<Step[]>(`Array.from({ length: ${times} }, () => {
        const asking = Array.from(document.querySelectorAll('[data-state=asks]'))
        const asks = asking.map(({ dataset }) => [dataset.lane, Number(dataset.size)])
        document.getElementById('${button}').click()
        const { textContent } = document.querySelector('[aria-current=step] .card-name')
        return { title: textContent, asks: Object.fromEntries(asks) }
      })`),
    plotted: () =>
      evaluate<Record<string, number[]>>(`(() => {
        const dots = Array.from(document.querySelectorAll('.plot > .dot'))
        const lanes = Array.from(document.querySelectorAll('.next'))
        return Object.fromEntries(lanes.map(({ dataset: { lane } }) => [
          lane,
          dots.filter(({ dataset }) => dataset.lane === lane)
            .map(({ dataset }) => Number(dataset.size)),
        ]))
      })()`),
    centreOf: async (selector: string) => {
      const { x, y, width, height } = await boxOf(selector)
      return [x + width / 2, y + height / 2]
    },
    key: async (key: keyof typeof KEYS) => {
      const text = key === ' ' ? { text: ' ' } : {}
      const given = { key, windowsVirtualKeyCode: KEYS[key] }
      await send('Input.dispatchKeyEvent', { type: 'keyDown', ...given, ...text })
      await send('Input.dispatchKeyEvent', { type: 'keyUp', ...given })
    },
    drop: async (files: string[]) => {
      await forgetNotices()
      const data = { items: [], files, dragOperationsMask: 1 }
      for (const type of ['dragEnter', 'dragOver', 'drop']) {
        await send('Input.dispatchDragEvent', { type, x: 300, y: 300, data })
      }
      await noticed()
    },
    choose: async (files: string[]) => {
      await forgetNotices()
      const { root } = await send('DOM.getDocument')
      const { nodeId } = await send('DOM.querySelector', {
        nodeId: root.nodeId,
        selector: '#files',
      })
      await send('DOM.setFileInputFiles', { files, nodeId })
      await noticed()
    },
    resize: async (width: number, height: number) => {
      const size = { width, height, deviceScaleFactor: 1, mobile: width < 500 }
      await send('Emulation.setDeviceMetricsOverride', size)
      await evaluate(`new Promise((done) => {
        const look = () => {
          if (innerWidth === ${width} && innerHeight === ${height}) done()
          else requestAnimationFrame(look)
        }
        requestAnimationFrame(() => requestAnimationFrame(look))
      })`)
    },
    prefer: (name: string, value: string) =>
      send('Emulation.setEmulatedMedia', { features: name ? [{ name, value }] : [] }),
    requests: () =>
      events
        .filter(({ method }) => method === 'Network.requestWillBeSent')
        .map(({ params }) => params.request.url as string),
    errors: () =>
      events
        .filter(({ method }) =>
          /exceptionThrown|entryAdded|consoleAPICalled/.test(method),
        )
        .map(({ params }) => JSON.stringify(params)),
    /** Drops what the console said of something that a test did on purpose. */
    forget: (what: RegExp) => {
      const kept = events.filter((event) => !what.test(JSON.stringify(event)))
      events.splice(0, events.length, ...kept)
    },
    close: async () => {
      await ask('Browser.close', {}).catch(() => browser.kill('SIGKILL'))
      const timer = setTimeout(() => browser.kill('SIGKILL'), 5000)
      await ended
      clearTimeout(timer)
      endGroup(browser.pid)
    },
  }
}

/** Ends what a browser has started and not ended yet; Windows knows no groups. */
function endGroup(pid = 0) {
  try {
    if (pid > 0 && process.platform !== 'win32') process.kill(-pid, 'SIGKILL')
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'ESRCH') throw error // it is gone
  }
}
