/** The checks of the docs can fail: each rule, on a page of a few lines. */
import assert from 'node:assert/strict'
import { test } from 'node:test'
import {
  chapterProblems,
  pairProblems,
  RULES,
  supportProblems,
  updatePage,
} from './docs.ts'
import { parsePage } from './markdown.ts'
import {
  doExercise,
  edited,
  expectedBody,
  inBrief,
  logProblem,
  partProblem,
  run,
} from './quotes.ts'

const page = (text: string, path = 'docs/sample.md') => parsePage(path, text)
const block = (text: string) => page(text).blocks[0]

/** Pages of which a rule says one thing, and pages of which it says nothing. */
const CASES: Record<string, { bad: string[]; good: string[] }> = {
  'every block is checked': {
    bad: [
      '```ts\nconst a = 1\n```',
      '<!-- file: steps/04-subagent.ts -->\n\n```sh\nls\n```',
      '<!-- output: npm run -s view 04 -->\n```text\n```',
      'A claim. <!-- checked -->',
    ],
    good: [
      '<!-- file: steps/04-subagent.ts -->\n```ts\na\n```',
      '```sh\nnpx tsx steps/04-subagent.ts\n```',
      '<!-- drawing -->\n```text\nsub-1 of step 04\n```',
    ],
  },
  'what is named exists': {
    bad: [
      '`steps/04-agents.ts`',
      '`npm run views 04`',
      '```sh\nnpx tsx steps/04-agent.ts\n```',
    ],
    good: [
      '`steps/04-subagent.ts`, `npm run view 04`, `logs/<step>/`',
      '```sh\nnpm run view 04   # npm run views\n```',
      '```sh\ncp steps/04-subagent.ts steps/mine.ts\nnpx tsx steps/mine.ts\n```',
    ],
  },
  'links lead somewhere': {
    bad: [
      '[gone](gone.md)',
      '# Here\n[there](#there)',
      '[log](logs.md#no-such-heading)',
      '[`runAgents`](../steps/04-subagent.ts#L1)',
      '[`runSubagent`](../steps/04-subagent.ts#L1)',
      '[the loop](../steps/04-subagent.ts#L1)',
    ],
    good: [
      '[log](logs.md#folders)',
      "# What's `here`, now?\n[here](#whats-here-now)",
      '[`04-subagent.ts`](../steps/04-subagent.ts)',
      '[web](https://example.com)',
    ],
  },
}

for (const [rule, { bad, good }] of Object.entries(CASES)) {
  test(rule, () => {
    for (const text of bad) assert.equal(RULES[rule](page(text)).length, 1, text)
    for (const text of good) assert.deepEqual(RULES[rule](page(text)), [])
  })
}

test('a page and its translation: headings and blocks', () => {
  const english = '# A\n## B\n```sh\nls # all\n```'
  const fault = (chinese: string) => pairProblems(page(english), page(chinese)).join()
  assert.equal(fault(english.replace('all', '全部').replace('A', '甲')), '')
  assert.match(fault(english.replace('## ', '### ')), /^heading 2: ## \| ###$/)
  assert.match(fault(english.replace('## B\n', '')), /^heading 2: ## \| none$/)
  assert.match(fault(english.replace('ls', 'cat')), /^block 1/)
})

test('a chapter has its parts, quotes, command and exercises', () => {
  const faults = chapterProblems(page('# 04 · Subagent\n', 'docs/04-subagent.md')).join()
  assert.match(
    faults,
    /its parts .*no two exercises.*no code.*no log.*no run.*draws.*no block shows/,
  )
  assert.match(
    chapterProblems(page('', 'docs/99-x.md')).join(),
    /no such step.*no number/,
  )
})

test('the page on support: what is missing, what is stale', () => {
  const text = '[`toolUses`](../steps/support/base/messages.ts#L5)'
  const faults = supportProblems(page(`${text} ${text.replace('toolUses', 'old')}`), [
    '01-agent-loop',
  ])
  assert(faults.includes('missing: textOf in support/base/messages.ts'))
  assert(faults.includes('missing: session.openLane in support/session.ts'))
  assert(faults.includes('no step uses old in support/base/messages.ts'))
  assert(!faults.join().includes('toolUses'))
})

test('a quote of a file is a piece of it', () => {
  const quote = (body: string) =>
    partProblem(block(`<!-- file: steps/04-subagent.ts -->\n\`\`\`ts\n${body}\n\`\`\``))
  assert.equal(quote('const MAX_TURNS = 30\n\ntype RunOptions = {'), undefined)
  assert.match(String(quote('const MAX_TURNS = 31')), /is not in/)
  assert.match(String(quote('MAX_TURNS = 30')), /is not in/)
})

test('a quote of a log is its lines, in order, with or without parts left out', () => {
  const lines = ['{"role":"user","content":"a"}', '{"role":"user","content":"b, c"}']
  assert.equal(logProblem(lines, lines), undefined)
  assert.equal(logProblem(lines, ['{"role":"user", … "b … c"}']), undefined)
  assert.match(String(logProblem(lines, [lines[1], lines[0]])), /order/)
  assert.match(String(logProblem(lines, ['{"role":"user", … "c … b"}'])), /no line/)
})

test('a line of a log in brief', () => {
  assert.equal(inBrief('3,13c3,7'), '3,13c3,7')
  const call = { type: 'tool_use', id: 'tool_1', name: 'bash', input: { command: 'ls' } }
  const line = JSON.stringify({ role: 'assistant', content: [call] })
  assert.equal(inBrief(`< ${line}`), '< assistant tool_use tool_1 bash ls')
})

test('an edit is made where its lines stand, once', () => {
  assert.equal(edited('a\nb\nc\n', ' a\n-b\n+x\n+y\n'), 'a\nx\ny\nc\n')
  assert.throws(() => edited('a\nb\na\n', '-a\n+b\n'), /fits 2 times/)
  assert.throws(() => edited('a\n', '-b\n+c\n'), /fits 0 times/)
})

test('what npm run docs writes is what the tests want', async () => {
  const text = [
    '<!-- file: steps/04-subagent.ts MAX_TURNS -->\n```ts\n```',
    '<!-- diff: 04 05 runTool -->\n```diff\nold\n```',
    '<!-- output: head -c 7 logs/recorded/04-subagent/parent.log -->\n```json\n```',
    '[`MAX_TURNS`](../steps/04-subagent.ts)',
  ]
  const updated = page(await updatePage(page(text.join('\n\n'))))
  const [file, changed, output] = updated.blocks.map(({ body }) => body)
  assert.equal(file, 'const MAX_TURNS = 30\n')
  assert.match(changed, /^ \/\*\* Throwing/)
  assert.equal(output, '{"level\n')
  assert.match(updated.text, /04-subagent\.ts#L\d+\)$/)
})

test('what does not exist is named', async () => {
  const fault = (text: string) => assert.rejects(expectedBody(block(text)), /\w/)
  await fault('<!-- file: steps/04-subagent.ts runAgents -->\n```ts\n```')
  await fault('<!-- diff: 02 99 runTools -->\n```diff\n```')
  const edit = '<!-- exercise: 04-nap -->\n```diff\n-no such line\n+x\n```'
  await assert.rejects(doExercise(block(edit)), /fits 0 times/)
})

test('a command shows both its outputs, and its exit code is kept', async (t) => {
  if (process.platform === 'win32') return t.skip('it needs a POSIX shell')
  const result = await run('echo out; echo err >&2; exit 3', process.cwd())
  assert.deepEqual(result, { code: 3, output: 'out\nerr\n' })
})
