/** Each step as a reader runs it without a key: a process, the real SDK, real tools. */
import assert from 'node:assert/strict'
import { spawnSync } from 'node:child_process'
import {
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  writeFileSync,
} from 'node:fs'
import { join } from 'node:path'
import { describe, test } from 'node:test'
import { readFolder, requestSizes } from '../steps/support/base/lane-file.ts'
import { editStep, makeRoot, runStep } from './server.ts'

const posix = { skip: process.platform === 'win32' && 'needs a POSIX system' }
const root = makeRoot()
const recorded = readdirSync(join(root, 'logs', 'recorded'))
const lanes = (folder: string) => readFolder(join(root, 'logs', 'recorded', folder))
const files = (folder: string) =>
  Object.fromEntries(
    readdirSync(folder).map((name) => [name, readFileSync(join(folder, name), 'utf8')]),
  )

describe('a step equals its recording', { concurrency: 2 }, () => {
  for (const name of recorded) {
    test(name, async () => {
      const step = name.split('.')[0]
      const folder = join('logs', 'recorded', name)
      const args = step === name ? [] : ['--replay', folder]
      // Part 1 by the reader's own command; for the rest what tsx makes of them will do.
      const run = await runStep({ step, args, root, tsx: step < '05' })
      const last = lanes(name)[0].lines.at(-1)
      const failure = last?.event ? String(last.error.message) : undefined
      assert.equal(run.code, failure ? 1 : 0)
      if (failure) assert(run.stderr.includes(failure), run.stderr)
      else assert.equal(run.stderr, '')
      assert.match(run.stdout, new RegExp(`^${step}, offline: .*; log: logs/${name}\n`))
      assert.match(run.stdout, new RegExp(`\nlog: logs/${name}\n$`))
      assert.doesNotMatch(run.stdout, /not your edit/)
      assert.deepEqual(files(join(root, 'logs', name)), files(join(root, folder)))
    })
  }
})

describe('the story in the recordings', () => {
  const results = (name: string, lane: number) =>
    lanes(name)[lane].messages.flatMap(({ content }) =>
      typeof content === 'string'
        ? []
        : content.flatMap((block) =>
            block.type === 'tool_result' ? [block.content] : [],
          ),
    )
  const FAILED = /^ok - Hello, Ada!\nFAILED - Hello, undefined!\n\(exit code 1\)$/
  const PASSED = 'ok - Hello, Ada!\nok - Hello, world!'

  for (const [name, lane] of [
    ['01-agent-loop', 0],
    ['02-tool-use', 0],
    ['03-todo-write', 0],
    ['04-subagent', 1],
  ] as const) {
    test(`${name}: fails its own check, is mended, passes`, () => {
      const said = results(name, lane).map((text) => String(text).trim())
      const failed = said.findIndex((text) => FAILED.test(text))
      const passed = said.indexOf(PASSED)
      assert(failed >= 0, 'the first run fails')
      assert(passed > failed, 'a later one passes')
      assert.equal(said.filter((text) => text.startsWith('ok')).length, 2)
    })
  }

  test('03: the reminder comes once, behind the results', () => {
    const reminded = lanes('03-todo-write')[0].messages.filter(({ content }) => {
      return Array.isArray(content) && content[0].type === 'tool_result' && content[1]
    })
    assert.equal(reminded.length, 1)
    assert.match(JSON.stringify(reminded[0].content), /"type":"text","text":"Reminder:/)
  })

  test('04: the child does word for word what 02 did; the parent holds none of it', () => {
    const [before] = lanes('02-tool-use')
    const [parent, child] = lanes('04-subagent')
    assert.deepEqual(child.messages.slice(1), before.messages.slice(1))
    const used = parent.messages.flatMap(({ content }) =>
      typeof content === 'string'
        ? []
        : content.flatMap((block) => (block.type === 'tool_use' ? [block.name] : [])),
    )
    assert.deepEqual(used, ['task', 'read_file'])
    const text = JSON.stringify(parent.messages)
    assert.doesNotMatch(text, /write_file|edit_file|node hello|FAILED -/)
  })

  test('04: the parent has half the messages of 02, and sends less than half', () => {
    const [before] = lanes('02-tool-use')
    const [parent] = lanes('04-subagent')
    const sum = (sizes: number[]) => sizes.reduce((a, b) => a + b)
    assert(parent.messages.length <= before.messages.length / 2)
    assert(sum(requestSizes(parent)) <= sum(requestSizes(before)) / 2)
  })

  test('04.false-summary: the report is wrong, and the parent finds out by reading', () => {
    const [parent, child] = lanes('04-subagent.false-summary')
    assert.doesNotMatch(JSON.stringify(child.messages.slice(1)), /name = 'world'/)
    const calls = JSON.stringify(parent.messages)
    assert(calls.indexOf('read_file') > calls.indexOf('both checks pass'))
    assert(calls.indexOf('FAILED') > calls.indexOf('read_file'))
    assert(calls.lastIndexOf('ok - Hello, world!') > calls.indexOf('edit_file'))
  })

  test('every recording says in its first line that it is written by hand', () => {
    for (const name of recorded) {
      for (const { header } of lanes(name)) assert.match(header.note, /written by hand/)
    }
  })
})

describe('what a reader changes', { concurrency: 2 }, () => {
  test('a cap of 2: the child stops, and the parent is told where the recording ends', async () => {
    const root = makeRoot()
    editStep(root, '04-subagent', 'const MAX_TURNS = 30', 'const MAX_TURNS = 2')
    const run = await runStep({ step: '04-subagent', root })
    assert.match(
      run.stdout,
      /from parent 3 on the model answers the recording, not your edit/,
    )
    const [parent, child] = readFolder(join(root, 'logs', '04-subagent'))
    assert.equal(child.header.max_turns, 2)
    assert.equal(requestSizes(child).length, 2)
    assert.match(
      JSON.stringify(parent.messages[2]),
      /stopped after 2 turns.*"is_error":true/,
    )
  })

  test('a system prompt: the note comes before the first answer', async () => {
    const root = makeRoot()
    editStep(root, '02-tool-use', 'Act with your tools', 'Use your tools')
    const run = await runStep({ step: '02-tool-use', root })
    assert.match(run.stdout, /from parent 1 on the model answers the recording/)
    assert.equal(run.code, 0)
  })

  test('a tool description shows in line 1', async () => {
    const root = makeRoot()
    editStep(root, '04-subagent', 'Give a piece of work', 'Hand a piece of work')
    const run = await runStep({ step: '04-subagent', root })
    assert.match(run.stdout, /from parent 1 on/)
    assert.doesNotMatch(run.stdout, /from sub-1/)
    const [parent] = readFolder(join(root, 'logs', '04-subagent'))
    assert.match(parent.header.tools[4].description, /^Hand a piece/)
  })

  test('a broken protocol is refused as the API refuses it', async () => {
    const root = makeRoot()
    editStep(
      root,
      '02-tool-use',
      "push(messages, { role: 'user', content: await runTools(reply, options) })",
      "await runTools(reply, options)\n    push(messages, { role: 'user', content: 'done' })",
    )
    const run = await runStep({ step: '02-tool-use', root })
    assert.equal(run.code, 1)
    assert.match(run.stderr, /^400 invalid_request_error: .*`tool_use` ids were found/)
    assert.doesNotMatch(run.stderr, /\n\s+at /)
  })

  test('another prompt: what was recorded, and how to go live', async () => {
    const run = await runStep({ step: '04-subagent', args: ['Say', 'hello.'] })
    assert.equal(run.code, 1)
    assert.match(run.stderr, /this prompt was not recorded: Say hello\./)
    assert.match(run.stderr, /parent: Create hello\.mjs/)
    assert.match(run.stderr, /copy \.env\.example to \.env/)
  })

  test('each prompt is refused for what it is', async () => {
    const root = makeRoot()
    const own = lanes('04-subagent')[0].messages[0].content as string
    const stdin = `Say a.\nSay b.\n${own}\n`
    const run = await runStep({ step: '04-subagent', stdin, root })
    assert.equal(run.code, 1)
    const said = run.stderr.match(/^.*this prompt was.*$/gm) ?? []
    assert.deepEqual(
      said.map((line) => line.slice(0, 60)),
      [
        'this prompt was not recorded: Say a.',
        'this prompt was not recorded: Say b.',
        `this prompt was recorded, but not at this place: ${own}`.slice(0, 60),
      ],
    )
  })

  test('a recording that lacks a turn is named with lane and place', async () => {
    const root = makeRoot()
    const path = join(root, 'logs', 'recorded', '04-subagent', 'sub-1.log')
    const lines = readFileSync(path, 'utf8').split('\n')
    writeFileSync(path, lines.toSpliced(4, 1).join('\n'))
    const run = await runStep({ step: '04-subagent', root })
    assert.equal(run.code, 1)
    const missing =
      /sub-1 left the recording at its message 3: in sub-1\.log no assistant message comes/
    assert.match(run.stdout + run.stderr, missing)
    assert.match(run.stderr, /parent is not answered, for sub-1 left the recording/)
  })

  test('ids that somebody has written by hand need not be ours', async () => {
    const root = makeRoot()
    const path = join(root, 'logs', 'recorded', '02-tool-use', 'parent.log')
    const other = readFileSync(path, 'utf8').replaceAll(/"tool_(\d+)"/g, '"call-$1"')
    writeFileSync(path, other)
    const run = await runStep({ step: '02-tool-use', root })
    assert.deepEqual([run.code, run.stderr], [0, ''])
    assert.doesNotMatch(run.stdout, /not your edit/)
    const log = join(root, 'logs', '02-tool-use')
    assert.deepEqual(files(log), files(join('logs', 'recorded', '02-tool-use')))
  })

  test('a turn that the recording does not have is not invented', async () => {
    const root = makeRoot()
    editStep(root, '02-tool-use', 'content: prompt })', "content: prompt + ' Please.' })")
    const run = await runStep({ step: '02-tool-use', root })
    assert.equal(run.code, 1)
    assert.match(run.stderr, /this prompt was not recorded/)
  })
})

describe('the folders of a run', { concurrency: 2 }, () => {
  test('a clone may be in a folder of any name', async (t) => {
    const plain = makeRoot()
    const root = `${plain} 中文 $& (x) 'y'`
    renameSync(plain, root)
    t.after(() => rmSync(root, { recursive: true, force: true }))
    for (const step of ['05-agent-profiles', '10-parallel']) {
      const { code, stderr } = await runStep({ step, root })
      assert.equal(stderr, '')
      assert.equal(code, 0)
      const folder = join('recorded', step)
      assert.deepEqual(files(join(root, 'logs', step)), files(join(root, 'logs', folder)))
    }
  })

  test('WORKDIR is a folder, or can become one', posix, async () => {
    const root = makeRoot()
    const run = async (WORKDIR: string) => {
      const { code, stderr } = await runStep({
        step: '02-tool-use',
        root,
        env: { WORKDIR },
      })
      return [code, stderr.trim()]
    }
    assert.deepEqual(await run('~/mine'), [0, '']) // HOME is the root here
    assert(existsSync(join(root, 'mine', 'hello.mjs')))
    assert.deepEqual(await run('  '), [0, ''])
    assert(!existsSync(join(root, '  ')))
    const file = join(root, 'package.json')
    const said = `The working directory cannot be used: ENOTDIR: not a directory, scandir '${file}'`
    assert.deepEqual(await run(file), [1, said])
  })

  test('a second run of the same step is refused while the first is at work', async () => {
    const root = makeRoot()
    const folder = join(root, '.workspace', 'offline')
    mkdirSync(folder, { recursive: true })
    const lock = join(folder, '04-subagent.lock')
    writeFileSync(lock, String(process.pid))
    const run = await runStep({ step: '04-subagent', root })
    assert.equal(run.code, 1)
    assert.match(
      run.stderr,
      new RegExp(`04-subagent is in use by process ${process.pid}`),
    )
    writeFileSync(lock, String(2 ** 22 + 1)) // more than any system gives
    assert.equal((await runStep({ step: '04-subagent', root })).code, 0)
    assert(!existsSync(lock))
  })

  test('a folder is never replayed over itself', async () => {
    const root = makeRoot()
    await runStep({ step: '04-subagent', root })
    const mine = join('logs', '04-subagent')
    const before = files(join(root, mine))
    const run = await runStep({ step: '04-subagent', args: ['--replay', mine], root })
    assert.equal(run.code, 0)
    assert.match(run.stdout, /log: logs\/04-subagent\.replay\n/)
    assert.deepEqual(files(join(root, mine)), before)
    assert.deepEqual(files(join(root, 'logs', '04-subagent.replay')), before)
  })

  test('npm run record makes it anew, but loses no turn of the model', posix, () => {
    const root = makeRoot()
    const folder = join(root, 'logs', 'recorded', '08-failure.same-cause')
    const before = files(folder)
    const record = () => {
      const args = ['--import', 'tsx', 'steps/support/cli/record.ts', '08']
      return spawnSync(process.execPath, args, { cwd: root, encoding: 'utf8' })
    }
    const parent = join(folder, 'parent.log')
    writeFileSync(parent, before['parent.log'].replaceAll('"tool_1"', '"mine"'))
    assert.equal(record().status, 0)
    assert.deepEqual(files(folder), before)

    const lines = before['parent.log'].split('\n')
    writeFileSync(parent, lines.toSpliced(2, 1).join('\n'))
    const broken = files(folder)
    const { status, stderr } = record()
    assert.equal(status, 1)
    assert.match(stderr, /08-failure\.same-cause: the run .* Nothing was written over it/)
    assert.deepEqual(files(folder), broken)
  })

  test('a torn recording is refused before anything is written', async () => {
    const root = makeRoot()
    const path = join(root, 'logs', 'recorded', '02-tool-use', 'parent.log')
    writeFileSync(path, readFileSync(path, 'utf8').slice(0, -20))
    const run = await runStep({ step: '02-tool-use', root })
    assert.equal(run.code, 1)
    assert.match(run.stderr, /parent\.log, line 13 is not JSON/)
    assert(!existsSync(join(root, 'logs', '02-tool-use')))
  })

  const isLinux = process.platform === 'linux'
  const full = { skip: !isLinux && 'needs /dev/full' }
  test('output that cannot be written is told once, and the log is whole', full, () => {
    const root = makeRoot()
    const command = `"${process.execPath}" --import tsx steps/02-tool-use.ts > /dev/full`
    const env = { PATH: process.env.PATH, HOME: root }
    const options = { cwd: root, env, encoding: 'utf8' } as const
    const { status, stderr } = spawnSync('sh', ['-c', command], options)
    assert.equal(status, 1)
    assert.match(stderr, /^Nothing more can be shown here: ENOSPC[^\n]*\n$/)
    const log = join(root, 'logs', '02-tool-use')
    assert.deepEqual(files(log), files(join(root, 'logs', 'recorded', '02-tool-use')))
  })

  test('a log that cannot be written is reported, and the run does not claim one', async () => {
    const root = makeRoot()
    writeFileSync(join(root, 'logs', '02-tool-use'), 'a file where the folder should be')
    const run = await runStep({ step: '02-tool-use', root })
    assert.equal(run.code, 1)
    assert.match(run.stdout, /; log: none\n/)
    assert.match(run.stderr, /Nothing can be logged: .*02-tool-use/)
    assert.doesNotMatch(run.stdout, /\nlog: /)
  })
})
