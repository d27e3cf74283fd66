/** The page in a real browser: headless Chromium over its DevTools protocol, by a pipe. */
import assert from 'node:assert/strict'
import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { accessSync, constants, mkdtempSync, readFileSync, rmSync } from 'node:fs'
import { mkdirSync, readdirSync, writeFileSync } from 'node:fs'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { tmpdir } from 'node:os'
import { delimiter, dirname, join } from 'node:path'
import process from 'node:process'
import type { Readable, Writable } from 'node:stream'
import { after, before, describe, test } from 'node:test'
import { setTimeout as sleep } from 'node:timers/promises'
import { pathToFileURL } from 'node:url'
import { type LaneFile, readFolder, requestSizes } from '../steps/support/lane-file.ts'
import { renderComparison } from '../steps/support/view.ts'
import { currentPage, PAGE } from './page-data.ts'

const RECORDED = join(dirname(import.meta.dirname), 'logs', 'recorded')
const html = readFileSync(PAGE, 'utf8')
const names = readdirSync(RECORDED).sort()
const runs = new Map(names.map((name) => [name, readFolder(join(RECORDED, name))]))
const linesOf = (lanes: LaneFile[]) => lanes.reduce((sum, { lines }) => sum + lines.length, 0)

test('the page holds the recordings as they are, and the hashes of its own code', () => {
  assert.equal(currentPage(html), html, 'npm run page brings it up to date')
})

test('the page fetches nothing, and makes no markup of text', () => {
  const code = html.replace(/<script type="application\/jsonl"[\s\S]*?<\/script>/g, '')
  assert.doesNotMatch(code, /innerHTML|outerHTML|insertAdjacent|document\.write|eval\(/)
  assert.doesNotMatch(code, /<(link|script|img|iframe)\b[^>]*\b(src|href)="(?!data:)/)
  const addresses = code.match(/https?:\/\/[^'" ]+/g) ?? []
  assert.deepEqual([...new Set(addresses)], ['http://www.w3.org/2000/svg'])
})

test('every label is there in English and in Chinese', () => {
  const source = /\nconst WORDS = (\{[\s\S]*?\n\})\n/.exec(html)?.[1]
  const { en, zh } = new Function(`return ${source}`)()
  // biome-ignore lint/suspicious/noExplicitAny: words are nested as the page likes
  const shapeOf = (words: any): unknown => {
    if (typeof words === 'string') return (words.match(/\{\w+\}/g) ?? []).sort()
    return Object.fromEntries(Object.keys(words).map((key) => [key, shapeOf(words[key])]))
  }
  assert.deepEqual(shapeOf(zh), shapeOf(en))
})

const browserPath = findBrowser()
const skip = browserPath ? false : 'no Chromium: set CHROMIUM_PATH'

describe('the page in a browser', { skip, timeout: 120_000 }, () => {
  const folder = mkdtempSync(join(tmpdir(), 'page-'))
  let page: Page

  before(async () => {
    page = await openPage(browserPath as string, join(folder, 'profile'))
  })
  after(async () => {
    await page?.close()
    rmSync(folder, { recursive: true, force: true, maxRetries: 9 })
  })

  const fileOf = (name: string, lines: unknown[]) => {
    const path = join(folder, name)
    mkdirSync(dirname(path), { recursive: true })
    const rows = lines.map((it) => (typeof it === 'string' ? it : JSON.stringify(it)))
    writeFileSync(path, `${rows.join('\n')}\n`)
    return path
  }

  for (const [name, lanes] of runs) {
    test(`${name}: opens whole, and steps back and forward`, async () => {
      await page.open(`#${name}`)
      const count = linesOf(lanes)
      assert.equal(await page.text('#count'), `${count} / ${count}`)
      const shown = () => page.evaluate<string[]>(CARDS)
      const all = await shown()
      for (const { name, messages } of lanes) {
        const own = all.filter((title) => title.startsWith(`${name} `))
        assert.deepEqual(own, messages.map((_, i) => `${name} ${i + 1}`))
      }
      const walk = (button: string) =>
        page.evaluate<string[]>(`Array.from({ length: ${count - 1} }, () => {
          document.getElementById('${button}').click()
          return document.querySelectorAll('.card').length + document.querySelector(
            '.card[aria-current] .card-name').textContent
        })`)
      const back = await walk('back')
      assert.deepEqual(await shown(), [`${lanes[0].name} 1`])
      const forward = await walk('forward')
      assert.deepEqual(await shown(), all)
      assert.deepEqual(forward.slice(0, -1).reverse(), back.slice(0, -1))
      forward.forEach((now, i) => assert(now.startsWith(String(i + 2)), now))
    })

    test(`${name}: plot, table and next requests hold the sizes of the files`, async () => {
      await page.open(`?behind=#${name}`)
      const sizes = Object.fromEntries(lanes.map((lane) => [lane.name, requestSizes(lane)]))
      assert.deepEqual(await page.evaluate(PLOTTED), sizes)
      const asked = await page.evaluate<Record<string, number[]>>(`{
        const asked = {}
        document.getElementById('first').click()
        for (let left = ${linesOf(lanes)}; left > 0; left--) {
          for (const { dataset } of document.querySelectorAll('.next')) {
            const sizes = (asked[dataset.lane] ??= [])
            if (dataset.state === 'asks' && sizes.at(-1) !== Number(dataset.size)) {
              sizes.push(Number(dataset.size))
            }
          }
          document.getElementById('forward').click()
        }
        asked
      }`)
      for (const [lane, sizes] of Object.entries(asked)) {
        // Two requests in a row of the same size: the first one got no reply.
        const known = requestSizes(lanes.find(({ name }) => name === lane) as LaneFile)
        assert.deepEqual(sizes, known.filter((size, i) => size !== known[i - 1]))
      }
    })
  }

  test('two runs compared: the table holds the numbers of npm run view 02 04', async () => {
    const pair = ['02-tool-use', '04-subagent'].map((name) => runs.get(name) ?? [])
    const lines = renderComparison(pair[0], pair[1], 120)
    const seen = new Map<string, string[]>()
    for (const line of lines) {
      const [, title, value] = /^ {2}(0\d \S+(?: lanes)?) +([\d,]+) /.exec(line) ?? []
      if (title) seen.set(title, [...(seen.get(title) ?? []), value])
    }
    await page.open('#04-subagent')
    const rows = await page.evaluate<string[][]>(
      `Array.from(document.querySelectorAll('tbody tr'), ({ children }) =>
        Array.from(children, ({ textContent }) => textContent))`,
    )
    assert.equal(rows.length, 4)
    for (const [title, messages, requests, largest, all] of rows) {
      const short = title.replace(/-\S+/, '')
      assert.deepEqual([messages, requests, largest, all], withRequests(seen.get(short)))
    }
    const [a, b] = lines.join(' ').match(/\d+ %/g)?.slice(-2) ?? []
    assert.match(await page.text('#numbers'), new RegExp(`${a}.*; .* ${b}`))

    function withRequests(values: string[] = []) {
      return values.length === 4 ? values : [values[0], values[1], ...values.slice(2)]
    }
  })
})

const CARDS = `Array.from(document.querySelectorAll('.card-name'), (it) => it.textContent)`
const PLOTTED = `Object.fromEntries(Array.from(document.querySelectorAll('.next'), (lane) => [
  lane.dataset.lane,
  Array.from(document.querySelectorAll('.plot > .dot'))
    .filter(({ dataset }) => dataset.lane === lane.dataset.lane)
    .map(({ dataset }) => Number(dataset.size)),
]))`
