/** Step 05: what a profile may say, how a wrong one is named, and what a child gets. */
import assert from 'node:assert/strict'
import { existsSync, mkdirSync, readdirSync, rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, test } from 'node:test'
import { type Profile, parseProfile } from '../steps/support/agents/profiles.ts'
import {
  about,
  bash,
  byPrompt,
  calls,
  type Json,
  laneOf,
  logFolder,
  MODEL,
  makeRoot,
  read,
  readLane,
  resultsIn,
  runLive,
  runStep,
  task,
  text,
  write,
} from './live.ts'

const STEP = '05-agent-profiles'
const FOUR = ['bash', 'read_file', 'write_file', 'edit_file']

const parse = (source: string, tools = FOUR) =>
  parseProfile(
    source,
    tools.map((name) => ({ name })),
  )

/** A file with this in its head, behind a name and before a description. */
const file = (head = '') =>
  `---\nname: x\n${head}${head && '\n'}description: Looks.\n---\nBody.`
/** One with this in its head, behind a name. */
const named = (head: string) => `---\nname: x\n${head}\n---\nBody.`

// biome-ignore format: a table
const UNDERSTOOD: [what: string, source: string, says: Partial<Profile>][] = [
  ['no more than it must', file(),
    { name: 'x', description: 'Looks.', tools: undefined, model: undefined, body: 'Body.' }],
  ['every key', file('tools: bash\nmodel: small-1\neffort: xhigh\ntimeout: 90000'),
    { tools: ['bash'], model: 'small-1', effort: 'xhigh', timeout: 90_000 }],
  ["the parent's model", file('model: "Inherit"'), { model: undefined }],
  ['a body with rules of its own', `${file()}\n\n---\nname: y\n\n`,
    { name: 'x', body: 'Body.\n\n---\nname: y' }],
  ['no body', '---\nname: x\ndescription: Looks.\n---', { body: '' }],
  ['a name in Chinese', '---\nname: 代码审查\ndescription: 查：问题\n---',
    { name: '代码审查', description: '查：问题' }],
  ['comments, blank lines, spaces at an end',
    named('# one\n\n  # two\ndescription: Looks. # three\n# four\neffort: low  '),
    { description: 'Looks.', effort: 'low' }],
  ['a colon, and a # that begins no comment', named('description: Use when: C#, a#b.'),
    { description: 'Use when: C#, a#b.' }],
  ['single quotes', named(`description: 'Says "no": a # b' # comment`),
    { description: 'Says "no": a # b' }],
  ['double quotes', named('description: "It\'s for: a # b" # comment'),
    { description: "It's for: a # b" }],
  ['quotes within a plain value', named('description: Don\'t "guess" \\n'),
    { description: 'Don\'t "guess" \\n' }],
  ['folded', named('description: >\n  Looks: at\n  "it" # all\n\n  - twice\neffort: low'),
    { description: 'Looks: at "it" # all - twice', effort: 'low' }],
  ['folded, chomped', named('description: >-\n  One\n    two.\n'), { description: 'One two.' }],
  ['a list without brackets', file('tools: bash,read_file # two'),
    { tools: ['bash', 'read_file'] }],
  ['a list in brackets', file('tools: [ bash, "read_file", \'edit_file\', ] # [all]'),
    { tools: ['bash', 'read_file', 'edit_file'] }],
  ['a list of lines', file('tools:\n  - bash\n\n  - "read_file" # comment'),
    { tools: ['bash', 'read_file'] }],
  ['a list of lines at the margin', file('tools: # these\n- bash\n  # second\n- read_file'),
    { tools: ['bash', 'read_file'] }],
  ['an empty list: no tool', file('tools: []'), { tools: [] }],
]

describe('a file that is understood', () => {
  for (const [what, source, says] of UNDERSTOOD) {
    test(what, () => {
      for (const lines of [source, source.replaceAll('\n', '\r\n')]) {
        const profile = parse(lines)
        for (const key of Object.keys(says) as (keyof Profile)[])
          assert.deepEqual(profile[key], says[key], key)
      }
    })
  }
})

const NO_KEY = 'neither "key: value" nor part of a value: '
const GOES_ON = 'it goes on below: put > before long text, - before an item'
const NO_TOOLS = 'tools has a blank value: leave it out for all, [] is for none'
const TIME = 'timeout must be milliseconds: a whole number from 1000 to 2147483647'
const noTool = (name: string) => `No tool ${name}, only ${FOUR.join(', ')}.`
const unclear = (text: string) =>
  `not understood: ${text}: close what opens, quote it, or use > alone`

/** What stands in a file, and what is said of it. */
// biome-ignore format: a table
const REFUSED: [what: string, source: string, line: number, reason: string][] = [
  ['no opening', file().slice(4), 1, 'it does not begin with ---'],
  ['no closing', '---\nname: x\n\n ---\nBody.', 5, 'there is no closing ---'],
  ['no name', '---\ndescription: y\n---', 1, 'name is missing'],
  ['no description', '---\nname: x\n---', 1, 'description is missing'],
  ['a name without a value', '---\nname:\ndescription: y\n---', 2, 'name has no value'],
  ['a blank description', named('description: " "'), 3, 'description has no value'],
  ['a list for text', named('description:\n  - a\n  - b'), 3, 'description must be text, not a list'],
  ['an unknown key', file('color: blue'), 3,
    'unknown key color, not name, description, tools, model, effort, timeout'],
  ['a key twice', file('effort: low\neffort: max'), 4, 'effort stands twice'],
  ['no space behind a key', file('effort:low'), 3, `${NO_KEY}effort:low`],
  ['a line that belongs to none', file('effort: low\n\nand so on'), 5, `${NO_KEY}and so on`],
  ['an unknown tool', file('\ntools: [bash, Grep]'), 4, noTool('Grep')],
  ['task as a tool', file('tools:\n  - bash\n  - task'), 3, noTool('task')],
  ['an item that goes on', file('tools:\n  - bash\n    task'), 3, GOES_ON],
  ['plain text over lines', named('description: Looks\n  at it'), 3, GOES_ON],
  ['an item without a name', file('tools:\n  - bash\n  -'), 3, NO_TOOLS],
  ['tools without a value', file('tools: # none'), 3, NO_TOOLS],
  ['an open double quote', named('description: "Looks\neffort: low'), 3, unclear('"Looks')],
  ['a quote in single quotes', named("description: 'It''s'"), 3, unclear("'It''s'")],
  ['an escape', named('description: "Looks.\\nTwice."'), 3, unclear('"Looks.\\nTwice."')],
  ['text behind a quote', named('description: "Looks": at it'), 3, unclear('"Looks": at it')],
  ['a literal text', named('description: |\n  Looks:\n  twice'), 3, unclear('|')],
  ['text behind a fold', named('description: > Looks\n  at it'), 3, unclear('> Looks')],
  ['a mapping', named('description: { a: b }'), 3, unclear('{ a: b }')],
  ['a list over lines', file('tools: [bash,\n  read_file]'), 3, unclear('[bash,')],
  ['text behind a bracket', file('tools: [bash] and more'), 3, unclear('[bash] and more')],
  ['a bad effort', file('effort: High'), 3, 'effort must be one of low, medium, high, xhigh, max'],
  ['a short time', file('timeout: 999'), 3, TIME],
  ['a long time', file('timeout: 2147483648'), 3, TIME],
  ['a time with a unit', file('timeout: 90s'), 3, TIME],
]

describe('a file that is not understood', () => {
  for (const [what, source, line, reason] of REFUSED) {
    test(what, () => {
      const message = `line ${line}: ${reason}`
      for (const lines of [source, source.replaceAll('\n', '\r\n')])
        assert.throws(() => parse(lines), { message })
    })
  }
})

/** Writes these files, names without `.md`, into `.agents` of a folder. */
function writeProfiles(folder: string, files: Record<string, string | Buffer>) {
  const agents = join(folder, '.agents')
  mkdirSync(agents, { recursive: true })
  for (const [name, source] of Object.entries(files))
    writeFileSync(join(agents, `${name}.md`), source)
}

const profile = (name: string, description: string, ...lines: string[]) =>
  ['---', `name: ${name}`, `description: ${description}`, ...lines].join('\n')
const namesIn = ({ tools }: Json) => tools.map(({ name }: Json) => name)

describe('a run', { concurrency: 4 }, () => {
  test('what a profile gives a child, and what it never does', async (t) => {
    const root = makeRoot(t)
    const workdir = join(root, '.workspace', STEP)
    writeProfiles(root, {
      scout: profile('scout', 'USER SCOUT', '---', 'user scout body'),
      mine: profile('mine', 'USER MINE', '---', 'user mine body'),
    })
    writeProfiles(workdir, {
      mine: profile('mine', 'PROJECT MINE', 'tools: read_file', '---', 'project body'),
      full: profile('full', 'FULL', 'model: other', 'effort: low', '---', 'full body'),
      heir: profile('heir', 'HEIR', 'model: inherit', '---', 'heir body'),
      mute: profile('mute', 'MUTE', 'tools: []', '---', 'mute body'),
      wide: profile('wide', 'WIDE', 'tools: [bash, task]', '---', 'wide body'),
      latin1: Buffer.from(profile('latin', 'Gr\xfc\xdft.', '---', 'Hi.'), 'latin1'),
      utf16: Buffer.from(`\ufeff${file()}`, 'utf16le'),
      'good-1': `\ufeff${profile('good', 'GOOD', '---', 'One.')}`,
      'good-2': profile('good', 'The second.', '---', 'Two.'),
    })
    mkdirSync(join(workdir, '.agents', 'folder.md'))
    writeFileSync(join(workdir, '.agents', 'notes.txt'), 'No profile.')
    const as = (agent: string) => task(`as ${agent}`, { agent })
    const answers = byPrompt({
      all: [
        calls(...['scout', 'mine', 'full', 'heir', 'mute'].map(as), task('as nobody')),
        text('So.'),
      ],
      'as scout': [text('Scouted.')],
      'as mine': [
        calls(
          ...[write('made.mjs', 'x'), bash('echo > made.txt')],
          ...[task('a grandchild'), read('made.mjs')],
        ),
        text('Tried.'),
      ],
      'as full': [calls(task('a grandchild', { agent: 'full' })), text('Worked.')],
      'as heir': [text('Inherited.')],
      'as mute': [text('Silent.')],
      'as nobody': [calls(task('a grandchild')), text('Plain.')],
      'no such': [calls(as('wide'), as('Scout')), text('So.')],
      later: [calls(task('again', { agent: 'mine' }), as('late')), text('So.')],
      again: [text('As before.')],
    })
    const run = await runLive(
      t,
      (body, n) => {
        // In the middle of the run one file changes and another comes.
        if (n === 3)
          writeProfiles(workdir, {
            mine: profile('mine', 'CHANGED', '---', 'changed body'),
            late: profile('late', 'LATE', '---', 'late'),
          })
        return answers(body, n)
      },
      { step: STEP, stdin: 'all\nno such\nlater\n', root },
    )
    assert.equal(run.code, 0)
    const asked = (prompt: string) => about(run.requests, prompt)
    const outputs = (prompt: string) =>
      resultsIn(asked(prompt).at(-1) ?? {}).map((one) => [one.content, one.is_error])
    const [parent] = asked('all')
    const parents = ['all', 'no such', 'later'].flatMap(asked)
    const children = run.requests.filter((body) => !parents.includes(body))

    await t.test('a wrong file is named, with line and reason, and not used', () => {
      const expected = [
        'folder.md: EISDIR: illegal operation on a directory, read',
        'good-2.md: another file is named good too',
        'latin1.md: The encoded data was not valid for encoding utf-8',
        'utf16.md: The encoded data was not valid for encoding utf-8',
        `wide.md: line 4: ${noTool('task')}`,
      ]
      const place = join('.workspace', STEP, '.agents', '/')
      const said = run.stderr.replaceAll(`Profile not used: ${place}`, '')
      assert.deepEqual(said.trim().split('\n'), expected)
    })

    await t.test('the project wins over the user, the user over the bundled', () => {
      const list = parent.system.split('\nAgents for task:\n')[1].split('\n')
      const others = [
        '- full: FULL',
        '- good: GOOD',
        '- heir: HEIR',
        '- mine: PROJECT MINE',
      ]
      assert.deepEqual(list.sort(), [...others, '- mute: MUTE', '- scout: USER SCOUT'])
      assert(asked('as scout')[0].system.endsWith('\n\nuser scout body'))
      assert(asked('as mine')[0].system.endsWith('\n\nproject body'))
    })

    await t.test('names and descriptions in the parent, bodies in the child', () => {
      for (const { system } of parents) {
        assert.equal(system, parent.system)
        assert.doesNotMatch(system, /body|Subagent mode/)
      }
      for (const body of children) {
        assert(body.system.startsWith(`${parent.system}\n\n# Subagent mode\n`))
        const bodies = body.system.match(/\w+ body/g) ?? []
        assert.equal(bodies.length, about([body], 'as nobody').length ? 0 : 1)
      }
      const [nobody, full] = ['as nobody', 'as full'].map((name) => asked(name)[0])
      assert.equal(full.system, `${nobody.system}\n\n# Agent profile\n\nfull body`)
    })

    await t.test("model and effort are that child's own, or the parent's", () => {
      assert.equal(asked('as full').length, 2)
      for (const body of run.requests) {
        const isFull = asked('as full').includes(body)
        assert.equal(body.model, isFull ? 'other' : MODEL)
        assert.deepEqual(body.output_config, isFull ? { effort: 'low' } : undefined)
      }
      const lanes = ['parent', 'sub-2', 'sub-3', 'sub-4']
      const models = lanes.map((lane) => laneOf(run, lane).header.model)
      assert.deepEqual(models, [MODEL, MODEL, 'other', MODEL])
    })

    await t.test('the tools are the list; none, or all but task', () => {
      assert.deepEqual(namesIn(parent), [...FOUR, 'task'])
      assert.deepEqual(namesIn(asked('as mine')[0]), ['read_file'])
      assert.deepEqual(namesIn(asked('as mute')[0]), [])
      for (const child of ['scout', 'full', 'nobody'])
        assert.deepEqual(namesIn(asked(`as ${child}`)[0]), FOUR)
    })

    await t.test('what is not in the list is not run, whatever it asks for', () => {
      const no = (name: string, only: string) => [`No tool ${name}, only ${only}.`, true]
      const [written, ran, nested, seen] = outputs('as mine')
      assert.deepEqual(written, no('write_file', 'read_file'))
      assert.deepEqual(ran, no('bash', 'read_file'))
      assert.deepEqual(nested, no('task', 'read_file'))
      assert.match(seen[0], /made\.mjs/)
      for (const name of ['mjs', 'txt'])
        assert(!existsSync(join(workdir, `made.${name}`)))
      for (const child of ['as full', 'as nobody'])
        assert.deepEqual(outputs(child)[0], no('task', FOUR.join(', ')))
      assert.deepEqual(asked('a grandchild'), [])
    })

    await t.test('an unknown agent lists those there are, and starts nothing', () => {
      const rest = ', only scout, mine, full, good, heir, mute.'
      assert.deepEqual(outputs('no such'), [
        [`No agent wide${rest}`, true],
        [`No agent Scout${rest}`, true],
      ])
      const logs = readdirSync(join(root, logFolder(run))).filter((n) => /^sub/.test(n))
      assert.equal(logs.length, 7)
    })

    await t.test('profiles are read once, when the run begins', () => {
      assert.equal(asked('again')[0].system, asked('as mine')[0].system)
      assert.deepEqual(namesIn(asked('again')[0]), ['read_file'])
      const [again, late] = outputs('later')
      assert.deepEqual(again, ['As before.', undefined])
      assert.match(late[0], /^No agent late, /)
    })
  })

  test('with no profile at all, none is named', async (t) => {
    const root = makeRoot(t)
    rmSync(join(root, 'steps', 'agents'), { recursive: true })
    writeFileSync(join(root, '.agents'), 'A file of that name is no folder.')
    const script = [calls(task('look', { agent: 'scout' })), text('So.')]
    const run = await runLive(t, script, { step: STEP, args: ['go'], root })
    assert.deepEqual([run.code, run.stderr], [0, ''])
    assert.match(run.requests[0].system, /\nAgents for task:\nnone$/)
    const [{ content }] = resultsIn(run.requests[1])
    assert.equal(content, 'No agent scout: there is none.')
  })

  test("offline the user's own are not read, the project's are", async (t) => {
    const root = makeRoot(t)
    const workdir = join(root, 'project')
    writeProfiles(root, {
      wrong: '---\nname: x\n---',
      user: profile('user', 'USER', '---', 'Hi.'),
    })
    writeProfiles(workdir, { mine: profile('mine', 'MINE', '---', 'Hi.') })
    const run = await runStep({ step: STEP, env: { WORKDIR: workdir }, root })
    assert.equal(run.stderr, '')
    const { system } = readLane(root, `logs/${STEP}/parent.log`).header
    assert.match(system, /\n- scout: .*\n- mine: MINE$/)
  })
})
