/** Each step as a reader runs it without a key: a process, the real SDK, real tools. */
import assert from 'node:assert/strict'
import { spawnSync } from 'node:child_process'
import * as fs from 'node:fs'
import { join } from 'node:path'
import { describe, test } from 'node:test'
import { readFolder, requestSizes } from '../steps/support/base/lane-file.ts'
import {
  compile,
  editStep,
  filesOf as files,
  makeRoot,
  posix,
  runStep,
  startStep,
} from './live.ts'

const full = { skip: process.platform !== 'linux' && 'needs /dev/full' }
const root = makeRoot()
const recorded = fs.readdirSync(join(root, 'logs', 'recorded'))
const lanes = (folder: string) => readFolder(join(root, 'logs', 'recorded', folder))
/** Changes the lines of a recorded file, in a root of one's own. */
const editLines = (path: string, edit: (lines: string[]) => string[]) =>
  fs.writeFileSync(path, edit(fs.readFileSync(path, 'utf8').split('\n')).join('\n'))

describe('a step equals its recording', { concurrency: 2 }, () => {
  for (const name of recorded) {
    test(name, async () => {
      const [step] = name.split('.')
      const folder = join('logs', 'recorded', name)
      const args = step === name ? [] : ['--replay', folder]
      // Part 1 by the reader's own command; for the rest what tsx makes of them will do.
      const run = await runStep({ step, args, root, tsx: name === step && step < '05' })
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
  const blocks = (name: string, lane = 0) =>
    lanes(name)[lane].messages.flatMap(({ content }) =>
      typeof content === 'string' ? [] : content,
    )
  const FAILED = /^ok - Hello, Ada!\nFAILED - Hello, undefined!\n\(exit code 1\)$/
  const PASSED = 'ok - Hello, Ada!\nok - Hello, world!'

  for (const name of ['01-agent-loop', '02-tool-use', '03-todo-write', '04-subagent']) {
    test(`${name}: fails its own check, is fixed, passes`, () => {
      const said = blocks(name, name === '04-subagent' ? 1 : 0).map((block) =>
        block.type === 'tool_result' ? String(block.content).trim() : '',
      )
      const failed = said.findIndex((text) => FAILED.test(text))
      assert(failed >= 0, 'the first run fails')
      assert(said.indexOf(PASSED) > failed, 'a later one passes')
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
    const calls = blocks('04-subagent').filter((block) => block.type === 'tool_use')
    const names = calls.map((call) => 'name' in call && call.name)
    assert.deepEqual(names, ['task', 'read_file'])
    const text = JSON.stringify(parent.messages)
    assert.doesNotMatch(text, /write_file|edit_file|node hello|FAILED -/)
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
    for (const { header } of recorded.flatMap(lanes)) {
      assert.match(header.note, /written by hand/)
    }
  })
})

describe('what a reader changes', { concurrency: 2 }, () => {
  const RESULTS =
    "push(messages, { role: 'user', content: await runTools(reply, options) })"
  const NO_RESULTS =
    "await runTools(reply, options)\n    push(messages, { role: 'user', content: 'done' })"
  const HALF = "push(messages, { role: 'user', content: 'a\\ud83d' })"
  // biome-ignore format: a table
  const EDITS: [name: string, step: string, from: string, to: string, code: number, told: RegExp][] = [
    ['a cap of 2', '04-subagent', 'const MAX_TURNS = 30', 'const MAX_TURNS = 2', 0, /from parent 3 on the model answers the recording, not your edit/],
    ['a system prompt', '02-tool-use', 'Act with your tools', 'Use your tools', 0, /from parent 1 on the model answers the recording/],
    ['a tool description', '04-subagent', 'Give a piece of work', 'Hand a piece of work', 0, /from parent 1 on(?!.*from sub-1)/s],
    ['a call without its result', '02-tool-use', RESULTS, NO_RESULTS, 1, /^400 invalid_request_error: .*`tool_use` ids were found without .* in the next message\.$/m],
    ['half a character', '02-tool-use', RESULTS, HALF, 1, /^400 invalid_request_error: The request body is not valid JSON: no low surrogate in string/m],
    ['a compaction that was not recorded', '12-compaction', 'bytes: 6_500', 'bytes: 5_000', 1, /^sub-1 is not summed up: [^\n]*\n(?!Recorded)/m],
    ['a turn that was not recorded', '02-tool-use', 'content: prompt })', "content: prompt + ' Please.' })", 1, /this prompt was not recorded/],
  ]
  for (const [name, step, from, to, code, told] of EDITS) {
    test(name, async () => {
      const root = makeRoot()
      editStep(root, step, from, to)
      const run = await runStep({ step, root })
      assert.match(run.stderr + run.stdout, told)
      assert.equal(run.code, code)
      assert.doesNotMatch(run.stderr, /\n\s+at /)
      const [parent, child] = readFolder(join(root, 'logs', step))
      if (name !== 'a cap of 2') return
      assert.equal(child.header.max_turns, 2)
      assert.equal(requestSizes(child).length, 2)
      const report = JSON.stringify(parent.messages[2])
      assert.match(report, /stopped after 2 turns.*"is_error":true/)
    })
  }

  test('each prompt is refused for what it is, with what was recorded', async () => {
    const own = lanes('04-subagent')[0].messages[0].content as string
    const { code, stderr } = await runStep({
      step: '04-subagent',
      stdin: `Say a.\nSay b.\n${own}\n`,
    })
    assert.equal(code, 1)
    const said = stderr.match(/^.*this prompt was.*$/gm) ?? []
    assert.deepEqual(
      said.map((line) => line.slice(0, 60)),
      [
        'this prompt was not recorded: Say a.',
        'this prompt was not recorded: Say b.',
        `this prompt was recorded, but not at this place: ${own}`.slice(0, 60),
      ],
    )
    assert.match(stderr, /parent: Create hello\.mjs/)
    assert.match(stderr, /copy \.env\.example to \.env/)
  })

  test('a recording that lacks a turn is named with lane and place', async () => {
    const root = makeRoot()
    const path = join(root, 'logs', 'recorded', '04-subagent', 'sub-1.log')
    editLines(path, (lines) => lines.toSpliced(4, 1))
    const { code, stdout, stderr } = await runStep({ step: '04-subagent', root })
    assert.equal(code, 1)
    const missing =
      'sub-1 left the recording at its message 3: next it answers 4 other messages'
    assert((stdout + stderr).includes(missing), stdout + stderr)
    assert.match(stderr, /parent is not answered, for sub-1 left the recording/)
  })

  test('ids that somebody has written by hand need not be ours', async () => {
    const root = makeRoot()
    const path = join(root, 'logs', 'recorded', '02-tool-use', 'parent.log')
    const before = fs.readFileSync(path, 'utf8')
    fs.writeFileSync(path, before.replaceAll(/"tool_(\d+)"/g, '"call-$1"'))
    const { code, stdout, stderr } = await runStep({ step: '02-tool-use', root })
    assert.deepEqual([code, stderr], [0, ''])
    assert.doesNotMatch(stdout, /not your edit/)
    assert.equal(files(join(root, 'logs', '02-tool-use'))['parent.log'], before)
  })
})

describe('the folders of a run', { concurrency: 2 }, () => {
  test('a clone may be in a folder of any name', async (t) => {
    const plain = makeRoot()
    const root = `${plain} 中文 $& a$$b (x) 'y'`
    fs.renameSync(plain, root)
    t.after(() => fs.rmSync(root, { recursive: true, force: true }))
    const step = '10-parallel'
    const { code, stderr } = await runStep({ step, root })
    assert.deepEqual([code, stderr], [0, ''])
    const folder = join(root, 'logs', 'recorded', step)
    assert.deepEqual(files(join(root, 'logs', step)), files(folder))
  })

  test('WORKDIR is a folder, or can become one', posix, async () => {
    const root = makeRoot()
    const run = async (WORKDIR: string) => {
      const env = { WORKDIR }
      const { code, stderr } = await runStep({ step: '02-tool-use', root, env })
      return [code, stderr.trim()]
    }
    assert.deepEqual(await run('~/mine'), [0, '']) // HOME is the root here
    assert(fs.existsSync(join(root, 'mine', 'hello.mjs')))
    assert.deepEqual(await run('  '), [0, ''])
    assert(!fs.existsSync(join(root, '  ')))
    const file = join(root, 'package.json')
    const said = `The working directory cannot be used: ENOTDIR: not a directory, scandir '${file}'`
    assert.deepEqual(await run(file), [1, said])
  })

  test('a second run of the same step is refused while the first is at work', async () => {
    const root = makeRoot()
    const path = join(root, 'steps', '04-subagent.ts')
    const source = fs.readFileSync(path, 'utf8')
    const waits = 'await new Promise((go) => setTimeout(go, 1e9))\n'
    fs.writeFileSync(path, `${source.replace('await session.run', `${waits}$&`)}`)
    const first = startStep({ step: '04-subagent', root })
    await first.output('offline')
    fs.writeFileSync(path, source)
    const { code, stderr } = await runStep({ step: '04-subagent', root })
    assert.equal(code, 1)
    assert.match(
      stderr,
      new RegExp(`04-subagent is in use by process ${first.child.pid}`),
    )
    first.child.kill('SIGKILL')
    await first.result
    assert.equal((await runStep({ step: '04-subagent', root })).code, 0)
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

  test('a torn recording is refused before anything is written', async () => {
    const root = makeRoot()
    const path = join(root, 'logs', 'recorded', '02-tool-use', 'parent.log')
    fs.truncateSync(path, fs.statSync(path).size - 20)
    const run = await runStep({ step: '02-tool-use', root })
    assert.equal(run.code, 1)
    assert.match(run.stderr, /parent\.log, line 13 is not JSON/)
    assert(!fs.existsSync(join(root, 'logs', '02-tool-use')))
  })

  test('output that cannot be written is told once, and the log is whole', full, () => {
    const root = makeRoot()
    const step = compile(root, 'steps/02-tool-use.ts')
    const command = `"${process.execPath}" ${step} > /dev/full`
    const env = { PATH: process.env.PATH, HOME: root }
    const options = { cwd: root, env, encoding: 'utf8' } as const
    const { status, stderr } = spawnSync('sh', ['-c', command], options)
    assert.equal(status, 1)
    assert.match(stderr, /^Nothing more can be shown here: ENOSPC[^\n]*\n$/)
    const log = join(root, 'logs', '02-tool-use')
    assert.deepEqual(files(log), files(join(root, 'logs', 'recorded', '02-tool-use')))
  })

  test('a run that cannot be logged does not begin', async () => {
    const root = makeRoot()
    fs.writeFileSync(join(root, 'logs', '02-tool-use'), 'a file in place of the folder')
    const run = await runStep({ step: '02-tool-use', root })
    assert.deepEqual([run.code, run.stdout], [1, ''])
    assert.match(run.stderr, /^Nothing can be logged: .*02-tool-use.*\n$/)
  })
})
