/** The checks of the docs can fail: each rule, on a page of a few lines. */
import assert from 'node:assert/strict'
import { test } from 'node:test'
import { chapterProblems, pairProblems, RULES, updatePage } from './docs.ts'
import { type Page, parsePage } from './markdown.ts'
import { diff, doExercise, expectedBody, logProblem, partProblem, run } from './quotes.ts'

const page = (text: string, path = 'docs/sample.md') => parsePage(path, text)
const block = (text: string) => page(text).blocks[0]
const LOG = 'logs/recorded/04-subagent/parent.log'

/** What a rule says of a page that breaks it and of one that does not. */
function differ(rule: string, bad: string[], good: string[], path?: string) {
  for (const text of bad) {
    assert.equal(RULES[rule](page(text, path)).length, 1, `nothing wrong with ${text}`)
  }
  for (const text of good) assert.deepEqual(RULES[rule](page(text, path)), [])
}

test('every block is checked', () => {
  differ(
    'every block is checked',
    [
      '```ts\nconst a = 1\n```',
      '```text\nlook\n```',
      '<!-- file: steps/04-subagent.ts -->\n\n```sh\nls\n```',
      '<!-- output: npm run -s view 04 -->\n```text\n```',
      '<!-- drawing -->\n```text\nat most 30\n```',
      'A claim. <!-- checked -->',
    ],
    [
      '<!-- file: steps/04-subagent.ts -->\n```ts\na\n```',
      '```sh\nnpx tsx steps/04-subagent.ts\n```',
      '<!-- drawing -->\n```text\nsub-1 of step 04\n```',
      '6<!-- = messages 04-subagent/parent -->',
    ],
  )
})

test('no figure is loose', () => {
  const rule = 'no figure is loose'
  differ(
    rule,
    ['There are 6 messages.', 'Five calls.', 'the third one', '43 %', 'a list of 10'],
    [
      '6<!-- = messages 04-subagent/parent --> messages, one of two',
      'Steps 02 and 04, the article s04, §2.1, step 10.',
      '1. first\n2. second',
      '`MAX_TURNS = 30` and [a link](https://example.com/30)',
    ],
  )
  differ(
    rule,
    ['共三条', '有 6 条', '第十条', '五分钟'],
    ['十分清楚，一共两条'],
    'docs/zh/a.md',
  )
})

test('every figure is right', () => {
  differ(
    'every figure is right',
    [
      '7<!-- = messages 04-subagent/parent -->',
      'seven<!-- = messages 04-subagent/parent -->',
      '6<!-- = messages 04-subagent/sub-9 -->',
      '6<!-- = miles 04-subagent/parent -->',
      '31<!-- = after steps/04-subagent.ts const MAX_TURNS = -->',
      '8000<!-- = after steps/04-subagent.ts : -->',
    ],
    [
      '6<!-- = messages 04-subagent/parent -->',
      'Six<!-- = messages 04-subagent/parent -->',
      '18<!-- = messages 04-subagent -->, 3<!-- = requests 04-subagent/parent -->',
      '5<!-- = calls 04-subagent/sub-1 -->, 2<!-- = calls 04-subagent/sub-1 bash -->',
      '5<!-- = tools 04-subagent/parent -->, 100<!-- = percent 04-subagent 04-subagent -->',
      '30<!-- = after steps/04-subagent.ts const MAX_TURNS = -->',
      '120<!-- = seconds steps/support/tools/bash.ts TIMEOUT_MS = -->',
      '1<!-- = lines steps/04-subagent.ts MAX_TURNS -->',
      '1<!-- = gone 02-tool-use/parent 04-subagent/sub-1 -->',
    ],
  )
})

test('inline code is real', () => {
  differ(
    'inline code is real',
    ['`MAX_TURNS = 31`', '`steps/04-agents.ts`', '`npm run views 04`'],
    ['`MAX_TURNS = 30`', '`steps/04-subagent.ts`', '`npm run view 04`', '`sub-3`'],
  )
})

test('commands exist', () => {
  differ(
    'commands exist',
    ['```sh\nnpx tsx steps/04-agent.ts\n```', '```sh\nnpm run views 04 # a look\n```'],
    ['```sh\nnpm run view 04   # npm run views\n```'],
  )
})

test('links lead somewhere', () => {
  differ(
    'links lead somewhere',
    [
      '[gone](gone.md)',
      '# Here\n[there](#there)',
      '[log](logs.md#no-such-heading)',
      '[`runAgents`](../steps/04-subagent.ts#L1)',
      '[`runSubagent`](../steps/04-subagent.ts#L1)',
      '[`runSubagent`](../steps/04-subagent.ts)',
      '[the loop](../steps/04-subagent.ts#L1)',
    ],
    [
      '[log](logs.md#folders)',
      "# What's `here`, now?\n[here](#whats-here-now)",
      '[`04-subagent.ts`](../steps/04-subagent.ts)',
      '[web](https://example.com)',
    ],
  )
})

test('a page and its translation: headings, blocks, figures', () => {
  const english =
    '# A\n## B\n```sh\nls # all\n```\n6<!-- = messages 04-subagent/parent -->'
  const fault = (chinese: string) => pairProblems(page(english), page(chinese)).join()
  assert.equal(fault(english.replace('all', '全部').replace('A', '甲')), '')
  assert.match(fault(english.replace('## ', '### ')), /^heading 2: ## \| ###$/)
  assert.match(fault(english.replace('## B\n', '')), /^heading 2: ## \| none$/)
  assert.match(fault(english.replace('ls', 'cat')), /^block 1/)
  assert.match(fault(english.replace('messages', 'requests')), /^figure 1/)
})

test('a chapter has its parts, quotes and exercises', () => {
  const faults = chapterProblems(page('# 04 · Subagent\n', 'docs/04-subagent.md'))
  assert.equal(faults.length, 6)
  assert.match(
    faults.join(),
    /its parts are .*0 exercises.*no code.*no log.*no run.*draws/,
  )
  assert.match(
    chapterProblems(page('', 'docs/11-x.md')).join(),
    /no such step.*no number/,
  )
})

test('a quote of a file is a piece of it', () => {
  const quote = (body: string) =>
    partProblem(block(`<!-- file: steps/04-subagent.ts -->\n\`\`\`ts\n${body}\n\`\`\``))
  assert.equal(quote('const MAX_TURNS = 30\n\ntype LoopOptions = {'), undefined)
  assert.match(String(quote('const MAX_TURNS = 31')), /is not in/)
  assert.match(String(quote('MAX_TURNS = 30')), /is not in/)
})

test('a quote of a log is its lines, in order, with or without parts left out', () => {
  const lines = ['{"role":"user","content":"a"}', '{"role":"user","content":"b, c"}']
  assert.equal(logProblem(lines, lines), undefined)
  assert.equal(logProblem(lines, ['{"role":"user", … "b … c"}']), undefined)
  assert.match(String(logProblem(lines, [lines[1], lines[0]])), /order/)
  assert.match(String(logProblem(lines, ['{"role":"user"'])), /no line/)
  assert.match(String(logProblem(lines, ['{"role":"user", … "c … b"}'])), /no line/)
})

test('what npm run docs writes is what the tests want', async () => {
  const text = [
    '<!-- file: steps/04-subagent.ts MAX_TURNS -->\n```ts\n```',
    '<!-- diff: 02 04 LoopEnd -->\n```diff\nold\n```',
    `<!-- output: head -c 7 ${LOG} -->\n\`\`\`json\n\`\`\``,
    '<!-- exercise: 04-cap -->\n```diff\n```',
    '[`MAX_TURNS`](../steps/04-subagent.ts)',
  ]
  const updated: Page = page(await updatePage(page(text.join('\n\n'))))
  const [file, changed, output, edit] = updated.blocks.map(({ body }) => body)
  assert.equal(file, 'const MAX_TURNS = 30\n')
  assert.match(
    changed,
    /^-type LoopEnd = .*\n\+type LoopEnd = .*'max_turns'; text: string }\n$/,
  )
  assert.equal(output, '{"level\n')
  assert.equal(edit, '-const MAX_TURNS = 30\n+const MAX_TURNS = 2\n')
  assert.match(updated.text, /04-subagent\.ts#L\d+\)$/)
})

test('what does not exist is named', async () => {
  const fault = (text: string) => assert.rejects(expectedBody(block(text)), /\w/)
  await fault('<!-- file: steps/04-subagent.ts runAgents -->\n```ts\n```')
  await fault('<!-- diff: 02 99 runTools -->\n```diff\n```')
  await fault('<!-- exercise: 04-nap -->\n```diff\n```')
  await assert.rejects(doExercise('04-nap'), /exercises\.ts has no 04-nap/)
})

test('a command shows both its outputs, and its exit code is kept', async (t) => {
  if (process.platform === 'win32') return t.skip('it needs a POSIX shell')
  const result = await run('echo out; echo err >&2; exit 3', process.cwd())
  assert.deepEqual(result, { code: 3, output: 'out\nerr\n' })
})

test('a diff is the shortest', () => {
  assert.deepEqual(diff(['a', '', 'b', 'c'], ['a', '', 'x', 'c', 'd']), [
    ' a',
    '',
    '-b',
    '+x',
    ' c',
    '+d',
  ])
})
