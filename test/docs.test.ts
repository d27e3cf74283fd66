/**
 * The docs cannot lie: what README.md and docs/ quote, count, link to and promise is
 * compared with the files, the recordings and what the commands print.
 *
 * A fenced block has one of these comments on the line before it; without one it can only
 * be `sh` (commands to type; what they name exists) or `mermaid`.
 *
 *   file: steps/04-subagent.ts             a contiguous piece of the file
 *   file: steps/04-subagent.ts runTools    the whole declaration *
 *   diff: 02 04 runTools                   a declaration, from one step to another *
 *   log: logs/recorded/…/parent.log        lines of it, in order; … for what is left out
 *   output: COMMAND                        what it shows in a fresh clone *
 *   exercise: 04-cap                       the edit, as test/exercises.ts holds it *
 *   after: 04-cap COMMAND                  what it shows once that edit has been run *
 *   write: logs/recorded/…/parent.log      a file that the reader writes; the page's
 *                                          outputs that name its folder find it there
 *   drawing                                a drawing; no figure stands in it
 *
 * `npm run docs` fills those with a star. A figure in prose, digits or a word from three
 * on, says where it is from, directly behind it: `6<!-- = messages 04-subagent/parent -->`.
 * A run stands for all its lanes; without a lane in it, the first one is compared.
 *
 *   messages, requests, largest, bytes, tools RUN     calls RUN [TOOL]
 *   percent RUN RUN    of the bytes of all requests   gone, new RUN RUN    messages
 *   lines FILE [DECLARATION]    after, seconds FILE TEXT    the number behind that text
 *   minutes STEP    to read a chapter and its step (test/quotes.ts has the rule)
 *
 * Not counted as figures: steps (02), sections (§2.1), numbers of a list, code.
 * A link named by code is named after the file or a declaration in it, and its line.
 */
import assert from 'node:assert/strict'
import { readdirSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { describe, test } from 'node:test'
import { readFolder } from '../steps/support/base/lane-file.ts'
import { chapterProblems, pairProblems, RULES } from './docs.ts'
import { EXERCISES } from './exercises.ts'
import { allPages, type Block, LINK } from './markdown.ts'
import { doExercise, expectedBody, partProblem } from './quotes.ts'

const root = dirname(import.meta.dirname)
const pages = allPages()
const pageAt = (path: string) => pages.find((page) => page.path === path)
const steps = readdirSync(join(root, 'steps'))
  .filter((name) => /^\d\d-.*\.ts$/.test(name))
  .map((name) => name.replace('.ts', ''))

for (const page of pages) {
  for (const [name, rule] of Object.entries(RULES)) {
    test(`${page.path}: ${name}`, () => assert.deepEqual(rule(page), []))
  }
}

const skip = process.platform === 'win32' && 'the docs show what a POSIX shell prints'
const [runs, others] = [new Map<string, Block[]>(), new Map<string, Block[]>()]
for (const block of pages.flatMap(({ blocks }) => blocks)) {
  if (!/^(file|diff|log|output|exercise|after)$/.test(block.kind)) continue
  const map = /^(output|after)$/.test(block.kind) ? runs : others
  const key = `${block.kind}: ${block.args}`
  map.set(key, [...(map.get(key) ?? []), block])
}

describe('quotes are what they quote', () => {
  for (const [name, blocks] of others) {
    test(name, async () => {
      for (const block of blocks) {
        const expected = await expectedBody(block)
        if (expected === undefined) assert.equal(partProblem(block), undefined)
        else assert.equal(block.body, expected)
      }
    })
  }
})

describe('commands print what the docs show', { concurrency: 2, skip }, () => {
  for (const [name, blocks] of runs) {
    test(name, async () => {
      const expected = await expectedBody(blocks[0])
      for (const { body } of blocks) assert.equal(body, expected)
    })
  }
})

describe('exercises show what they promise', { concurrency: 2, skip }, () => {
  const shown = new Set(pages.flatMap(({ blocks }) => blocks).map(({ args }) => args))
  for (const [id, { step, expect }] of Object.entries(EXERCISES)) {
    test(id, async () => {
      const { root, code, output } = await doExercise(id)
      assert(shown.has(id), 'no chapter has this exercise')
      expect({ code, output, lanes: readFolder(join(root, 'logs', step)) })
    })
  }
})

for (const page of pages.filter(({ path }) => path.startsWith('docs/'))) {
  const chinese = page.path.replace(/^docs\/(?:zh\/)?/, 'docs/zh/')
  const english = chinese.replace('zh/', '')

  test(`${page.path} has its like in the other language`, () => {
    const pair = [english, chinese].map(pageAt)
    assert(pair[0] && pair[1], `${english} or ${chinese} is missing`)
    assert.deepEqual(pairProblems(pair[0], pair[1]), [])
  })

  test(`${page.path}: the way in leads there`, () => {
    const folder = dirname(page.path)
    const links = pageAt(`${folder}/README.md`)?.text.matchAll(LINK) ?? []
    const targets = [...links].map(([, , target]) => `${folder}/${target}`)
    assert(page.path.endsWith('README.md') || targets.includes(page.path))
  })
}

for (const step of steps) {
  test(`${step} has its chapter`, () => {
    for (const folder of ['docs', 'docs/zh']) {
      const page = pageAt(`${folder}/${step}.md`)
      assert(page, `${folder}/${step}.md is missing`)
      assert.deepEqual(chapterProblems(page), [])
    }
  })
}
