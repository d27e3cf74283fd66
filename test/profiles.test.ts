/** Step 05: what a profile may say, how a wrong one is named, and what a child gets. */
import assert from 'node:assert/strict'
import { existsSync, mkdirSync, readdirSync, rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, test } from 'node:test'
import { type Profile, parseProfile } from '../steps/support/agents/profiles.ts'
import { about, byPrompt, laneOf, logFolder, MODEL, resultsIn, runLive } from './live.ts'
import { calls, type Json, makeRoot, readLane, runStep, text } from './server.ts'

const STEP = '05-agent-profiles'
const FOUR = ['bash', 'read_file', 'write_file', 'edit_file']

/** A file with these lines in its head, beside name and description. */
const file = (...lines: string[]) =>
  ['---', 'name: x', 'description: Looks.', ...lines, '---', 'Body.'].join('\n')
/** One whose description is written so. */
const described = (...lines: string[]) =>
  ['---', 'name: x', ...lines, '---', 'Body.'].join('\n')

describe('a file that is understood', () => {
  const understood: Record<string, [source: string, says: Partial<Profile>]> = {
    'no more than it must': [
      file(),
      { name: 'x', description: 'Looks.', tools: undefined, body: 'Body.' },
    ],
    'every key': [
      file('tools: bash', 'model: small-1', 'effort: xhigh', 'timeout: 90000'),
      { tools: ['bash'], model: 'small-1', effort: 'xhigh', timeout: 90_000 },
    ],
    'the least and the most time': [file('timeout: 1000'), { timeout: 1000 }],
    'the most time': [file('timeout: 2147483647'), { timeout: 2 ** 31 - 1 }],
    'BOM and CRLF': [
      `\ufeff${file('tools:', '  - bash', '', 'effort: low').replaceAll('\n', '\r\n')}`,
      { name: 'x', tools: ['bash'], effort: 'low', body: 'Body.' },
    ],
    'a body with rules and lines of its own': [
      `${file()}\r\n\r\n---\r\nname: y\r\n\r\n`,
      { name: 'x', body: 'Body.\n\n---\nname: y' },
    ],
    'no body': ['---\nname: x\ndescription: Looks.\n---', { body: '' }],
    'blank lines, comments and spaces at an end': [
      described('# one', '', '  # two', 'description: Looks. # three', 'effort: low  '),
      { description: 'Looks.', effort: 'low' },
    ],
    'a # that begins no comment': [
      described('description: Knows C#, a#b.'),
      { description: 'Knows C#, a#b.' },
    ],
    'a colon, plain': [
      described('description: Use when: a test fails'),
      { description: 'Use when: a test fails' },
    ],
    'a colon and a #, in single quotes': [
      described("description: 'It''s for: a # b' # comment"),
      { description: "It's for: a # b" },
    ],
    'double quotes with escapes': [
      described('description: "Says \\"no\\": C:\\\\x, caf\\u00e9 # b"'),
      { description: 'Says "no": C:\\x, café # b' },
    ],
    'a quote within a plain value': [
      described('description: Don\'t "guess"'),
      { description: 'Don\'t "guess"' },
    ],
    'quotes over lines': [
      described('description: "Looks', '  # at: it,', '  once."'),
      { description: 'Looks # at: it, once.' },
    ],
    'plain over lines': [
      described('description: Looks', '  at it: # why', '', '  # not this', '  - once'),
      { description: 'Looks at it: - once' },
    ],
    'plain, from the next line on': [
      described('description:', '  Looks: at it'),
      { description: 'Looks: at it' },
    ],
    folded: [
      described('description: >', '  Looks: at', '  "it" # all', 'effort: low'),
      { description: 'Looks: at "it" # all', effort: 'low' },
    ],
    'folded, with a paragraph': [
      described('description: >-', '  One', '  two.', '', '  Three.', ''),
      { description: 'One two.\nThree.' },
    ],
    'folded, with a comment behind the mark': [
      described('description: >+ # a comment', '  One', '  two.'),
      { description: 'One two.' },
    ],
    literal: [
      described('description: |', '  One:', '    - two', '  # three', 'effort: low'),
      { description: 'One:\n  - two\n# three', effort: 'low' },
    ],
    'a list in one line, without brackets': [
      file('tools: bash,read_file'),
      { tools: ['bash', 'read_file'] },
    ],
    'a list in brackets': [
      file('tools: [ bash, "read_file", \'edit_file\' ] # [all]'),
      { tools: ['bash', 'read_file', 'edit_file'] },
    ],
    'a list in brackets over lines': [
      file('tools: [', '  bash, # first', '  # none', '  read_file,', ']'),
      { tools: ['bash', 'read_file'] },
    ],
    'a list of lines': [
      file('tools:', '  - bash', '  - "read_file" # comment'),
      { tools: ['bash', 'read_file'] },
    ],
    'a list of lines at the margin, with comments between': [
      file(
        'tools: # these',
        '# first',
        '- bash',
        '# second',
        '- read_file',
        'effort: low',
      ),
      { tools: ['bash', 'read_file'], effort: 'low' },
    ],
    'an empty list: no tool': [file('tools: []'), { tools: [] }],
  }
  for (const [name, [source, says]] of Object.entries(understood)) {
    test(name, () => {
      const profile = parseProfile(source, FOUR)
      for (const key of Object.keys(says) as (keyof Profile)[]) {
        assert.deepEqual(profile[key], says[key])
      }
    })
  }
})

/** What stands in a file, and what is said of it. */
const BROKEN: Record<string, [source: string, reason: string]> = {
  'no opening': [file().slice(4), 'line 1: it does not begin with ---'],
  'nothing at all': ['', 'line 1: it does not begin with ---'],
  'no closing': [
    '---\nname: x\ndescription: y\n\n ---\nBody.',
    'line 6: there is no closing ---',
  ],
  'no name': ['---\ndescription: y\n---\nBody.', 'line 1: name is missing'],
  'no description': ['---\nname: x\n---\nBody.', 'line 1: description is missing'],
  'a name without a value': [
    '---\nname:\ndescription: y\n---',
    'line 2: name has no value',
  ],
  'a blank description': [
    described('description: " "'),
    'line 3: description has no value',
  ],
  'a description of which nothing follows': [
    described('description: >', '', 'effort: low'),
    'line 3: description has no value',
  ],
  'a description that is a list': [
    described('description:', '  - a', '  - b'),
    'line 3: description must be text, not a list',
  ],
  'a name with a space': [
    '---\nname: a b\ndescription: y\n---',
    'line 2: name may hold only letters, digits, - and _',
  ],
  'an unknown key': [
    file('Tools: bash'),
    'line 4: unknown key Tools, not name, description, tools, model, effort, timeout',
  ],
  'a key twice': [file('effort: low', 'effort: max'), 'line 5: effort stands twice'],
  'no space behind a key': [
    file('effort:low'),
    'line 4: neither "key: value" nor part of a value: effort:low',
  ],
  'a line that belongs to none': [
    file('effort: low', '', 'and so on'),
    'line 6: neither "key: value" nor part of a value: and so on',
  ],
  'an unknown tool': [
    file('', 'tools: [bash, Grep]'),
    `line 5: tools names Grep, which is none of ${FOUR.join(', ')}`,
  ],
  'task as a tool': [
    file('tools:', '  - bash', '  - task'),
    `line 4: tools names task, which is none of ${FOUR.join(', ')}`,
  ],
  'a tool without a name': [
    file('tools: bash,'),
    `line 4: tools names nothing, which is none of ${FOUR.join(', ')}`,
  ],
  'tools without a value': [
    file('tools: # none', 'effort: low'),
    'line 4: tools has no value: leave it out for all tools, write [] for none',
  ],
  'tools in empty quotes': [
    file('tools: ""'),
    'line 4: tools has no value: leave it out for all tools, write [] for none',
  ],
  'an open double quote': [
    described('description: "Looks', 'effort: low'),
    'line 3: a quote is not closed, or something stands behind it',
  ],
  'an open single quote': [
    described("description: 'It's'"),
    'line 3: a quote is not closed, or something stands behind it',
  ],
  'text behind a quote': [
    described('description: "Looks": at it'),
    'line 3: a quote is not closed, or something stands behind it',
  ],
  'an unknown escape': [
    described('description: "C:\\x"'),
    'line 3: an escape in the quoted value is not understood',
  ],
  'an open bracket': [
    file('tools: [bash,', '  read_file', 'effort: low'),
    'line 4: the list has no closing ], or something stands behind it',
  ],
  'text behind a bracket': [
    file('tools: [bash] and more'),
    'line 4: the list has no closing ], or something stands behind it',
  ],
  'text behind a folding mark': [
    described('description: > Looks', '  at it'),
    'line 3: text behind > belongs on the next lines',
  ],
  'a bad effort': [
    file('effort: High'),
    'line 4: effort is none of low, medium, high, xhigh, max',
  ],
  'a timeout that is too short': [
    file('timeout: 999'),
    'line 4: timeout must be milliseconds: a whole number from 1000 to 2147483647',
  ],
  'a timeout that is too long': [
    file('timeout: 2147483648'),
    'line 4: timeout must be milliseconds: a whole number from 1000 to 2147483647',
  ],
  'a timeout with a unit': [
    file('timeout: 90s'),
    'line 4: timeout must be milliseconds: a whole number from 1000 to 2147483647',
  ],
  'a timeout without a value': [file('timeout:'), 'line 4: timeout has no value'],
  'a model without a value': [file('model: ""'), 'line 4: model has no value'],
}

describe('a file that is not understood', () => {
  for (const [name, [source, reason]] of Object.entries(BROKEN)) {
    test(name, () => {
      assert.throws(() => parseProfile(source, FOUR), { message: reason })
      const windows = source.replaceAll('\n', '\r\n')
      assert.throws(() => parseProfile(windows, FOUR), { message: reason })
    })
  }
})

/** Writes these files, names without `.md`, into `.agents` of a folder. */
function writeProfiles(folder: string, files: Record<string, string | Buffer>): string {
  const agents = join(folder, '.agents')
  mkdirSync(agents, { recursive: true })
  for (const [name, source] of Object.entries(files)) {
    writeFileSync(join(agents, `${name}.md`), source)
  }
  return agents
}

const profile = (name: string, description: string, ...lines: string[]) =>
  ['---', `name: ${name}`, `description: ${description}`, ...lines].join('\n')
const namesIn = ({ tools }: Json) => tools.map(({ name }: Json) => name)
const task = (prompt: string, agent?: string) => ({
  name: 'task',
  input: { prompt, ...(agent !== undefined && { agent }) },
})

describe('a run', { concurrency: 4 }, () => {
  test('a wrong file is named, with line and reason, and not used', async (t) => {
    const root = makeRoot(t)
    const workdir = join(root, '.workspace', STEP)
    const wrong = Object.values(BROKEN).map(([source, reason], i) => {
      return [`broken-${String(i).padStart(2, '0')}`, source, reason] as const
    })
    const files = wrong.map(([name, source]) => [
      name,
      source.replace('name: x', `name: ${name}`),
    ])
    const latin = Buffer.from(profile('latin', 'Gr\xfc\xdft.', '---', 'Hi.'), 'latin1')
    const agents = writeProfiles(workdir, {
      ...Object.fromEntries(files),
      latin1: latin,
      utf16: Buffer.from(`\ufeff${file()}`, 'utf16le'),
      'utf16-no-bom': Buffer.from(file(), 'utf16le'),
      'good-1': profile('good', 'The first.', '---', 'One.'),
      'good-2': profile('good', 'The second.', '---', 'Two.'),
    })
    mkdirSync(join(agents, 'folder.md'))
    writeFileSync(join(agents, 'notes.txt'), 'No profile.')
    writeFileSync(join(root, '.agents'), 'a file where a folder should be')
    const run = await runLive(t, [text('Done.')], { step: STEP, args: ['Go.'], root })

    const said = Object.fromEntries(
      run.stderr
        .trim()
        .split('\n')
        .map((line) => /^Profile not used: (.+?): (.*)$/.exec(line)?.slice(1) ?? [line]),
    )
    const path = (name: string) => join(agents, `${name}.md`)
    for (const [name, , reason] of wrong) assert.equal(said[path(name)], reason)
    for (const name of ['latin1', 'utf16', 'utf16-no-bom']) {
      assert.equal(said[path(name)], 'it is not UTF-8 text')
    }
    assert.equal(said[path('good-2')], 'another file is named good too')
    assert.match(said[path('folder')], /directory/i)
    assert.match(said[join(root, '.agents')], /not a directory/)
    assert.equal(Object.keys(said).length, wrong.length + 6)
    assert.equal(run.code, 0)

    const { system } = run.requests[0]
    assert.match(system, /\nAgents for task:\n- scout: .*\n- good: The first\.$/)
    assert.doesNotMatch(run.stdout + run.stderr, /\n\s+at /)
  })

  test('what a profile gives a child, and what it never does', async (t) => {
    const root = makeRoot(t)
    const workdir = join(root, '.workspace', STEP)
    writeProfiles(root, {
      scout: profile('scout', 'USER SCOUT', '---', 'user scout body'),
      mine: profile('mine', 'USER MINE', '---', 'user mine body'),
    })
    const project = {
      mine: profile(
        'mine',
        'PROJECT MINE',
        'tools: read_file',
        '---',
        'project mine body',
      ),
      full: profile(
        'full',
        'FULL',
        'model: other-model',
        'effort: low',
        '---',
        'full body',
      ),
      mute: profile('mute', 'MUTE', 'tools: []', '---', 'mute body'),
      wide: profile('wide', 'WIDE', 'tools: [bash, task]', '---', 'wide body'),
    }
    const agents = writeProfiles(workdir, project)
    const answers = byPrompt({
      'all four': [
        calls(
          task('as scout', 'scout'),
          task('as mine', 'mine'),
          task('as full', 'full'),
          task('as mute', 'mute'),
          task('as nobody'),
        ),
        text('So.'),
      ],
      'as scout': [text('Scouted.')],
      'as mine': [
        calls(
          { name: 'write_file', input: { path: 'made.mjs', content: 'x' } },
          { name: 'bash', input: { command: 'echo > made.txt' } },
          task('a grandchild'),
          { name: 'read_file', input: { path: 'made.mjs' } },
        ),
        text('Tried.'),
      ],
      'as full': [calls(task('a grandchild', 'full')), text('Worked.')],
      'as mute': [text('Silent.')],
      'as nobody': [calls(task('a grandchild')), text('Plain.')],
      'no such': [
        calls(task('as wide', 'wide'), task('as ghost', 'Scout'), { name: 'fly' }),
        text('So.'),
      ],
      later: [calls(task('as mine again', 'mine'), task('as late', 'late')), text('So.')],
      'as mine again': [text('As before.')],
    })
    const run = await runLive(
      t,
      (body, n) => {
        // In the middle of the run one file changes and another comes.
        if (n === 3) {
          const changed = profile('mine', 'CHANGED', '---', 'changed body')
          writeProfiles(workdir, {
            mine: changed,
            late: profile('late', 'LATE', '---', 'late'),
          })
        }
        return answers(body, n)
      },
      { step: STEP, stdin: 'all four\nno such\nlater\n', root },
    )
    const asked = (prompt: string) => about(run.requests, prompt)
    const outputs = (prompt: string) =>
      resultsIn(asked(prompt).at(-1) ?? {}).map(({ content, is_error }) => [
        content,
        is_error,
      ])
    const [parent] = asked('all four')
    const parents = ['all four', 'no such', 'later'].flatMap(asked)
    const children = run.requests.filter((body) => !parents.includes(body))

    await t.test('the project wins over the user, the user over the bundled', () => {
      const list = parent.system.split('\nAgents for task:\n')[1].split('\n')
      assert.deepEqual(list.sort(), [
        '- full: FULL',
        '- mine: PROJECT MINE',
        '- mute: MUTE',
        '- scout: USER SCOUT',
      ])
      assert(asked('as scout')[0].system.endsWith('\n\nuser scout body'))
      assert(asked('as mine')[0].system.endsWith('\n\nproject mine body'))
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

    await t.test("model and effort are that child's own", () => {
      assert.equal(asked('as full').length, 2)
      for (const body of asked('as full')) {
        assert.equal(body.model, 'other-model')
        assert.deepEqual(body.output_config, { effort: 'low' })
      }
      for (const body of run.requests.filter((one) => !asked('as full').includes(one))) {
        assert.equal(body.model, MODEL)
        assert.equal(body.output_config, undefined)
      }
      const [headers] = [['parent', 'sub-2', 'sub-3'].map((n) => laneOf(run, n).header)]
      assert.deepEqual(
        headers.map(({ model }) => model),
        [MODEL, MODEL, 'other-model'],
      )
    })

    await t.test('the tools are the list; none, or all but task', () => {
      assert.deepEqual(namesIn(parent), [...FOUR, 'task'])
      assert.deepEqual(namesIn(asked('as mine')[0]), ['read_file'])
      assert.deepEqual(namesIn(asked('as mute')[0]), [])
      assert.deepEqual(namesIn(asked('as scout')[0]), FOUR)
      assert.deepEqual(namesIn(asked('as full')[0]), FOUR)
      assert.deepEqual(namesIn(asked('as nobody')[0]), FOUR)
    })

    await t.test(
      'what is not in the list is not run, whatever the child asks for',
      () => {
        const [write, bash, nested, read] = outputs('as mine')
        assert.deepEqual(write, ['No tool write_file, only read_file.', true])
        assert.deepEqual(bash, ['No tool bash, only read_file.', true])
        assert.deepEqual(nested, ['No tool task, only read_file.', true])
        assert.match(read[0], /made\.mjs/)
        assert(
          !existsSync(join(workdir, 'made.mjs')) &&
            !existsSync(join(workdir, 'made.txt')),
        )
        const no = [`No tool task, only ${FOUR.join(', ')}.`, true]
        assert.deepEqual([outputs('as full')[0], outputs('as nobody')[0]], [no, no])
        assert.deepEqual(asked('a grandchild'), [])
      },
    )

    await t.test('one that names task is not there at all', () => {
      const wide = `Profile not used: ${join(agents, 'wide.md')}: line 4: tools names`
      assert(run.stderr.startsWith(wide), run.stderr)
      assert.equal(run.stderr.split('\n').length, 2)
    })

    await t.test('an unknown agent lists those there are, and starts nothing', () => {
      const [wide, ghost, fly] = outputs('no such')
      const rest = ', only scout, mine, full, mute.'
      assert.deepEqual(wide, [`No agent wide${rest}`, true])
      assert.deepEqual(ghost, [`No agent Scout${rest}`, true])
      assert.deepEqual(fly, [`No tool fly, only ${FOUR.join(', ')}, task.`, true])
      assert.deepEqual([...asked('as wide'), ...asked('as ghost')], [])
      const logs = readdirSync(join(root, logFolder(run))).filter((n) => /^sub/.test(n))
      assert.equal(logs.length, 6)
    })

    await t.test('profiles are read once, when the run begins', () => {
      assert.equal(asked('as mine again')[0].system, asked('as mine')[0].system)
      assert.deepEqual(namesIn(asked('as mine again')[0]), ['read_file'])
      const [again, late] = outputs('later')
      assert.deepEqual(again, ['As before.', undefined])
      assert.match(late[0], /^No agent late, /)
    })
    assert.equal(run.code, 0)
  })

  test('with no profile at all, none is named', async (t) => {
    const root = makeRoot(t)
    rmSync(join(root, 'steps', 'agents'), { recursive: true })
    const go = [calls({ name: 'task', input: { prompt: 'look', agent: 'scout' } })]
    const run = await runLive(t, byPrompt({ go: [...go, text('So.')] }), {
      step: STEP,
      stdin: 'go\n',
      root,
    })
    assert.equal(run.code, 0, run.stderr)
    const [{ content }] = resultsIn(run.requests[1])
    assert.equal(content, 'No agent scout, only none.')
  })

  test("offline the user's own are not read, the project's are", async (t) => {
    const root = makeRoot(t)
    const workdir = join(root, 'project')
    const wrong = '---\nname: x\n---'
    writeProfiles(root, { wrong, user: profile('user', 'USER', '---', 'Hi.') })
    writeProfiles(workdir, { mine: profile('mine', 'MINE', '---', 'Hi.') })
    const run = await runStep({ step: STEP, env: { WORKDIR: workdir }, root })
    assert.equal(run.stderr, '')
    const { system } = readLane(root, `logs/${STEP}/parent.log`).header
    assert.match(system, /\n- scout: .*\n- mine: MINE$/)
    assert.doesNotMatch(system, /USER/)
  })
})
