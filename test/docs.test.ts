/**
 * The docs cannot lie: what README.md and docs/ quote, link to and promise is compared
 * with the files, the recordings and what the commands print.
 *
 * A fenced block has one of these comments on the line before it; without one it can only
 * be `sh` (commands to type; what they name exists) or `mermaid`.
 *
 *   file: steps/04-subagent.ts             a contiguous piece of the file
 *   file: steps/04-subagent.ts runTools    the whole declaration *
 *   diff: 02 04 runTools                   a declaration, from one step to another *
 *   log: logs/recorded/…/parent.log        lines of it, in order; … for what is left out
 *   output: COMMAND                        what it shows in a fresh clone *
 *   brief: COMMAND                         the same, each line of a log as who says what *
 *   exercise: 04-cap                       an edit of step 04, as a diff
 *   write: 05-own steps/agents/cook.md     a file that the reader writes in an exercise
 *   after: 04-cap COMMAND                  what it shows after edit and run *
 *   drawing                                a drawing
 *
 * `npm run docs` fills those with a star. A number that could go stale stands in such a
 * block and not in prose. A link named by code is named after the file or a declaration
 * in it, and `npm run docs` puts in its line.
 */
import assert from 'node:assert/strict'
import { existsSync, readdirSync, readFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { describe, test } from 'node:test'
import { chapterProblems, pairProblems, RULES, supportProblems } from './docs.ts'
import { STORIES } from './exercises.ts'
import { allPages, type Block, idOf, isChinese, LINK, ROOT } from './markdown.ts'
import { doExercise, expectedBody, partProblem } from './quotes.ts'

const pages = allPages()
const pageAt = (path: string) => pages.find((page) => page.path === path)
const steps = readdirSync(join(ROOT, 'steps')).flatMap(
  (name) => /^(\d\d-.*)\.ts$/.exec(name)?.[1] ?? [],
)

for (const page of pages) {
  for (const [name, rule] of Object.entries(RULES)) {
    test(`${page.path}: ${name}`, () => assert.deepEqual(rule(page), []))
  }
}

const skip = process.platform === 'win32' && 'the docs show what a POSIX shell prints'
const RUN = /^(output|brief|after)$/
const quotes = new Map<string, Block[]>()
for (const block of pages.flatMap(({ blocks }) => blocks)) {
  const key = `${block.kind}: ${block.args}`
  if (RUN.test(block.kind) || /^(file|diff|log)$/.test(block.kind))
    quotes.set(key, [...(quotes.get(key) ?? []), block])
}

describe('quotes are what they quote', { concurrency: 2 }, () => {
  for (const [name, blocks] of quotes) {
    test(name, { skip: RUN.test(blocks[0].kind) && skip }, async () => {
      for (const block of blocks) {
        const expected = await expectedBody(block)
        if (expected === undefined) assert.equal(partProblem(block), undefined)
        else assert.equal(block.body, expected)
      }
    })
  }
})

const exercises = pages
  .filter((page) => !isChinese(page))
  .flatMap(({ blocks }) => blocks)
  .filter(({ kind }) => kind === 'exercise')

test('each exercise has its story, each story its exercise', () => {
  assert.deepEqual(Object.keys(STORIES).sort(), exercises.map(idOf).sort())
})

describe('exercises show what they promise', { concurrency: 2, skip }, () => {
  for (const block of exercises) {
    test(idOf(block), async () => {
      const { root, step, code, output } = await doExercise(block)
      for (const [what, patterns] of Object.entries(STORIES[idOf(block)])) {
        const path = join(root, 'logs', step, `${what}.log`)
        const log = existsSync(path) ? readFileSync(path, 'utf8') : 'no such lane'
        const text = { screen: output, exit: String(code) }[what] ?? log
        for (const pattern of [patterns].flat()) assert.match(text, pattern)
      }
      if (!STORIES[idOf(block)].exit) assert.equal(code, 0, output)
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
    for (const path of [`docs/${step}.md`, `docs/zh/${step}.md`]) {
      const page = pageAt(path)
      assert(page, `${path} is missing`)
      assert.deepEqual(chapterProblems(page), [])
    }
  })
}

test('docs/support.md lists what the steps take from support, and nothing else', () => {
  const page = pageAt('docs/support.md')
  assert(page, 'docs/support.md is missing')
  assert.deepEqual(supportProblems(page, steps), [])
})
