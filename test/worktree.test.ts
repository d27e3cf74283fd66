/** Step 11: a child's work apart from all others, until somebody merges it. */
import assert from 'node:assert/strict'
import { execFileSync } from 'node:child_process'
import * as fs from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { describe, test } from 'node:test'
import {
  closeWorktree,
  findWorktree,
  listWorktrees,
  openWorktree,
} from '../steps/support/agents/worktree.ts'
import {
  about,
  bash,
  byPrompt,
  type Context,
  calls,
  envFile,
  filesOf,
  type Json,
  laneOf,
  logFolder,
  makeRoot,
  posix,
  promptOf,
  read,
  resultsIn,
  runLive,
  runStep,
  serve,
  stall,
  startStep,
  task,
  text,
  until,
  write,
} from './live.ts'

const STEP = '11-worktree'
const NO_TOP = 'worktree works only at the top of a git repository with a commit.'
const CHANGED = '\n\n(Files may have changed: read again what you rely on.)'

const tree = (prompt: string, more: Json = {}) =>
  task(prompt, { worktree: true, ...more })
const resume = (lane: string, prompt: string) => task(prompt, { resume: lane })
const commit = [bash('git add -A'), bash('git commit -q -m "work"')]

/** The environment of somebody who has told git nothing, as the steps run in. */
const plain = { PATH: process.env.PATH, HOME: tmpdir(), GIT_CONFIG_NOSYSTEM: '1' }
const git = (cwd: string, ...args: string[]) =>
  execFileSync('git', args, { cwd, env: plain, encoding: 'utf8', stdio: 'pipe' })

function folder(t: Context): string {
  const path = fs.realpathSync(fs.mkdtempSync(join(tmpdir(), 'worktree-test-')))
  t.after(() => fs.rmSync(path, { recursive: true, force: true }))
  return path
}

/** A repository with one commit. */
function repository(t: Context, name = 'app'): string {
  const path = join(folder(t), name)
  fs.mkdirSync(join(path, 'sub'), { recursive: true })
  fs.writeFileSync(join(path, 'README.md'), 'one\n')
  fs.writeFileSync(join(path, 'where.mjs'), 'console.log(process.cwd())\n')
  fs.writeFileSync(join(path, 'sub', 'in.md'), 'inside\n')
  fs.writeFileSync(join(path, '.gitignore'), 'dist/\n*.db\n')
  git(path, 'init', '-q')
  git(path, 'config', 'user.name', 'me')
  git(path, 'config', 'user.email', 'me@example.com')
  git(path, 'add', '-A')
  git(path, 'commit', '-q', '-m', 'start')
  return path
}

const namesIn = (path: string) => (fs.existsSync(path) ? fs.readdirSync(path).sort() : [])
/** What is left of worktrees: their folders, and their branches. */
const leftIn = (workdir: string) => [
  namesIn(`${workdir}.worktrees`),
  git(workdir, 'for-each-ref', '--format=%(refname:lstrip=3)', 'refs/heads/agent')
    .split('\n')
    .filter(Boolean),
]

describe('a run', { concurrency: 4 }, () => {
  test('hides what a child does, keeps or removes it, and can merge it', async (t) => {
    const workdir = repository(t, 'my app')
    const make =
      "import { writeFileSync } from 'node:fs'\nwriteFileSync('名 前 b.md', 'x')\n"
    const script = byPrompt({
      go: [
        calls(
          ...[tree('a'), tree('b'), tree('clean'), tree('names')],
          tree('nobody', { agent: 'nobody' }),
        ),
        text('So.'),
      ],
      a: [
        calls(write('note.md', 'of a')),
        calls(read('note.md'), bash('node where.mjs')),
        text('A is done.'),
      ],
      b: [
        calls(write('note.md', 'of b'), write('README.md', 'two')),
        calls(read('note.md'), ...commit),
        text('B is done.'),
      ],
      clean: [calls(read('README.md')), text('Nothing to do.')],
      names: [
        calls(write('make.mjs', make), bash('node make.mjs'), ...commit),
        calls(write('more/late.md', 'not committed')),
        text('Names are done.'),
      ],
      next: [
        calls(
          write('draft.md', 'x'),
          resume('sub-1', 'a again'),
          resume('sub-3', 'never'),
        ),
        calls(
          ...[bash('git diff HEAD...agent/sub-2'), bash('git merge -q agent/sub-2')],
          ...[bash('git -C "../my app.worktrees/sub-4" add -A'), read('README.md')],
        ),
        text('So.'),
      ],
      [`a again${CHANGED}`]: [
        calls(read('note.md'), bash('node where.mjs'), write('second.md', 'x')),
        text('A has done more.'),
      ],
    })
    let wrote = 0
    const run = await runLive(
      t,
      async (body, n) => {
        if (/^[ab]$/.test(promptOf(body)) && body.messages.length === 3) {
          wrote += 1
          await until(() => wrote === 2, 'both have written')
        }
        return script(body, n)
      },
      { step: STEP, env: { WORKDIR: workdir }, stdin: 'go\nnext\n' },
    )
    assert.equal(run.code, 0, run.stderr)
    const results = resultsIn(about(run.requests, 'go')[1])
    const [a, b, clean, names, nobody] = results.map(({ content }) => content)
    for (const { content } of results)
      assert.doesNotMatch(content, /\b[0-9a-f]{7,}\b|could not see/)

    // Each sees its own file, and its own directory only.
    const pathOf = (lane: string) => join(`${workdir}.worktrees`, lane)
    const [seen, where] = resultsIn(about(run.requests, 'a')[2])
    assert.equal(seen.content, 'of a')
    assert.equal(where.content.trim(), pathOf('sub-1'))
    assert.equal(resultsIn(about(run.requests, 'b')[2])[0].content, 'of b')
    const { system } = about(run.requests, 'a')[0]
    assert(system.startsWith(`You are a coding agent in ${pathOf('sub-1')}.\n`))
    assert(!system.includes(`${workdir}.\n`), 'of the main directory it is not told')
    assert.equal(laneOf(run, 'sub-1').header.worktree, 'agent/sub-1')

    // What the parent is told.
    const at = (lane: string) => `"../my app.worktrees/${lane}"`
    const kept = (lane: string, files: string, rest = '') =>
      `Its worktree ${at(lane)} on branch agent/${lane} is kept. Changed: ${files}.${rest}` +
      ` To look: git diff HEAD...agent/${lane}.` +
      ` To take it over: git merge -q agent/${lane}.`
    const open = (lane: string) =>
      ` Not all of it is committed: git -C ${at(lane)} add -A, then commit.`
    assert(a.includes(kept('sub-1', 'note.md', open('sub-1'))), a)
    assert(b.includes(kept('sub-2', 'README.md, note.md')), b)
    assert.match(clean, /\n\nIt changed nothing, so its worktree was removed\.\n\n/)
    assert.doesNotMatch(clean, /resume "/)
    const made = 'make.mjs, more/late.md, 名 前 b.md'
    assert(names.includes(kept('sub-4', made, open('sub-4'))), names)
    assert.equal(nobody, 'No agent nobody, only scout.')
    const lanes = ['sub-1', 'sub-2', 'sub-4']
    assert.deepEqual(leftIn(workdir), [lanes, lanes])

    // One that was kept goes on in its place, one that was removed is gone.
    const [first, second] = about(run.requests, `a again${CHANGED}`)
    const [again, still] = resultsIn(second)
    assert.equal(again.content, 'of a')
    assert.equal(still.content.trim(), pathOf('sub-1'))
    assert.equal(first.system, system)
    assert.equal(first.messages[4].content[1].content.trim(), pathOf('sub-1'))
    const [, more, gone] = resultsIn(about(run.requests, 'next')[1])
    assert(more.content.includes(kept('sub-1', 'note.md, second.md', open('sub-1'))))
    assert.match(more.content, /could not see .* since, committed or not: draft\.md\./)
    assert.equal(gone.content, 'sub-3 cannot go on: its worktree is gone.')

    // What the parent is told to do is what it may do, and it works.
    const merged = resultsIn(about(run.requests, 'next')[2])
    assert.match(merged[0].content, /^\+of b$/m)
    assert.deepEqual(
      merged.slice(1).map(({ content }) => content.trim()),
      ['(no output)', '(no output)', 'two'],
    )
  })

  test('where there is no git, the tool says so, and starts nothing', async (t) => {
    const env = { WORKDIR: repository(t), PATH: folder(t) }
    const options = { step: STEP, args: ['go'], env }
    const run = await runLive(t, [calls(tree('work')), text('So.')], options)
    assert.equal(run.code, 0, run.stderr)
    const [{ content, is_error }] = resultsIn(run.requests[1])
    const said = 'worktree needs git, which is not here.'
    assert.deepEqual([content, is_error], [said, true])
    assert.deepEqual(namesIn(join(run.root, logFolder(run))), ['parent.log'])
  })

  test("offline, a reader's git settings do not disturb it", async (t) => {
    const root = makeRoot(t)
    const hooks = join(root, 'template', 'hooks')
    fs.mkdirSync(hooks, { recursive: true })
    const hook = '#!/bin/sh\necho disturbed\ntouch disturbed.txt\nexit 1\n'
    for (const name of ['pre-commit', 'commit-msg', 'post-checkout', 'pre-merge-commit'])
      fs.writeFileSync(join(hooks, name), hook, { mode: 0o755 })
    const config = `[commit]\n\tgpgsign = true\n[gpg]\n\tprogram = no-such-program
      [core]\n\thooksPath = ${JSON.stringify(hooks)}\n\tquotePath = true
      [init]\n\ttemplateDir = ${JSON.stringify(join(root, 'template'))}
      [merge]\n\tff = false\n[column]\n\tui = always\n[color]\n\tui = always\n`
    fs.writeFileSync(join(root, '.gitconfig'), config)
    const other = repository(t, 'other')
    const env = {
      GIT_DIR: join(other, '.git'),
      GIT_WORK_TREE: other,
      GIT_INDEX_FILE: join(other, '.git', 'index'),
      GIT_AUTHOR_DATE: 'yesterday',
    }
    const run = await runStep({ step: STEP, root, env })
    assert.deepEqual([run.stderr, run.code], ['', 0])
    const logs = ['logs', 'logs/recorded'].map((path) => filesOf(join(root, path, STEP)))
    assert.deepEqual(logs[0], logs[1])
    assert.equal(git(other, 'status', '--porcelain'), '')
    assert.equal(git(other, 'rev-list', '--count', '--all').trim(), '1')
  })

  test('a killed one is named, and goes on; Ctrl+C leaves no other', posix, async (t) => {
    const workdir = repository(t, 'app$$')
    const script = byPrompt({
      one: [calls(tree('a'))],
      a: [calls(write('note.md', 'of a')), stall()],
      two: [calls(resume('sub-1', 'go on')), text('So.')],
      [`go on${CHANGED}`]: [calls(read('note.md')), text('It is there.')],
      three: [calls(tree('b'))],
      b: [stall()],
    })
    const server = await serve(t, script)
    const dotenv = envFile(server.url)
    const options = { step: STEP, root: makeRoot(t), env: { WORKDIR: workdir }, dotenv }
    const killed = startStep({ ...options, args: ['one'] })
    await until(() => server.requests.length === 3, 'the child at work')
    killed.child.kill('SIGKILL')
    await killed.result

    const next = startStep({ ...options, args: ['--continue'], stdin: 'two\nthree\n' })
    await until(() => server.requests.length === 8, 'another child at work')
    next.child.kill('SIGINT')
    const run = await next.result
    assert.equal(run.code, 130, run.stderr)
    assert.deepEqual(server.refused, [])
    const place = `${join(`${workdir}.worktrees`, 'sub-1')}, branch agent/sub-1\n`
    assert(run.stdout.includes(`A worktree is left from an earlier run: ${place}`))
    const requests = server.requests.map(({ body }) => body)
    const resultOf = (prompt: string) => resultsIn(about(requests, prompt)[1])[0].content
    assert.equal(resultOf(`go on${CHANGED}`), 'of a')
    assert.match(resultOf('two'), /It is there\..*sub-1" on branch agent\/sub-1 is kept/s)
    const [{ content }] = laneOf(run).messages.at(-1)?.content ?? []
    assert.match(content, /^aborted by the user.*so its worktree was removed/s)
    assert.deepEqual(leftIn(workdir), [['sub-1'], ['sub-1']])
  })
})

describe('one of its own', { concurrency: 4 }, () => {
  test('says what its child could not see, also when it goes on', async (t) => {
    const workdir = repository(t)
    const put = (name: string) => fs.writeFileSync(join(workdir, name), 'new')
    const blind = (names: string) =>
      ' It started from a commit and could not see what has changed here since,' +
      ` committed or not: ${names}.`
    put('README.md')
    put('it is 新.md')
    put('no.db')
    fs.rmSync(join(workdir, 'sub', 'in.md'))
    const clean = await closeWorktree(workdir, await openWorktree(workdir, 'sub-1'))
    const seen = 'README.md, it is 新.md, sub/in.md'
    const told = `It changed nothing, so its worktree was removed.${blind(seen)}`
    assert.deepEqual(clean, { kept: false, told })

    for (const n of [1, 2, 3, 4, 5, 6, 7]) put(`a${n}.md`)
    const own = await openWorktree(workdir, 'sub-2')
    fs.writeFileSync(join(own.path, 'mine.md'), 'x')
    const many = 'README.md, a1.md, a2.md, a3.md, a4.md, a5.md, a6.md, a7.md and 2 more'
    const { told: kept } = await closeWorktree(workdir, own)
    assert(kept.endsWith(blind(many)), kept)

    // All is committed and merged; what came later is what it does not know.
    for (const path of [own.path, workdir]) {
      git(path, 'add', '-A')
      git(path, 'commit', '-q', '-m', 'work')
    }
    git(workdir, 'merge', '-q', 'agent/sub-2')
    git(own.path, 'merge', '-q', '--ff-only', git(workdir, 'rev-parse', 'HEAD').trim())
    const find = () => findWorktree(workdir, 'agent/sub-2', 'sub-2')
    assert.equal((await find()).unseen, '')
    put('later.md')
    git(workdir, 'add', '-A')
    git(workdir, 'commit', '-q', '-m', 'later')
    put('latest.md')
    assert.equal((await find()).unseen, 'later.md, latest.md')
  })

  test('loses nothing that git does not know, or knows elsewhere', async (t) => {
    const workdir = repository(t)
    const own = await openWorktree(workdir, 'sub-1')
    fs.mkdirSync(join(own.path, 'dist'))
    for (const name of ['dist/a.js', 'b.db']) fs.writeFileSync(join(own.path, name), 'x')
    const ignored = await closeWorktree(workdir, own)
    assert(ignored.kept)
    assert.match(ignored.told, /Changed: nothing.* so in no merge: b\.db, dist\/\./)

    git(own.path, 'checkout', '-q', '-b', 'topic')
    fs.writeFileSync(join(own.path, 'new.md'), 'x')
    git(own.path, 'add', '-A')
    git(own.path, 'commit', '-q', '-m', 'work')
    const { kept, told } = await closeWorktree(workdir, own)
    assert(kept)
    assert.match(told, /on branch topic is kept\. Changed: new\.md\..*merge -q topic\.$/)
    const beside = await openWorktree(workdir, 'sub-1')
    assert.equal(beside.branch, 'agent/sub-1-2', "it is in no new one's way")
  })

  test('that cannot be made, examined or found is said in one line', async (t) => {
    const workdir = repository(t)
    const empty = folder(t)
    git(empty, 'init', '-q')
    for (const path of [empty, join(workdir, 'sub')])
      await assert.rejects(openWorktree(path, 'sub-1'), { message: NO_TOP })
    git(workdir, 'branch', 'agent')
    const refused =
      /^Error: git worktree failed: [^\n]*refs\/heads\/agent.* exists[^\n]*$/
    await assert.rejects(openWorktree(workdir, 'sub-1'), refused)
    git(workdir, 'branch', '-D', 'agent')

    const own = await openWorktree(workdir, 'sub-1')
    fs.rmSync(join(own.path, '.git'))
    const place = 'Its worktree ../app.worktrees/sub-1, branch agent/sub-1,'
    const told = `${place} cannot be examined: it is gone.`
    assert.deepEqual(await closeWorktree(workdir, own), { kept: true, told })
    const find = findWorktree(workdir, own.branch, 'sub-1')
    await assert.rejects(find, { message: 'sub-1 cannot go on: its worktree is gone.' })
  })

  test('is found where a link leads, too', posix, async (t) => {
    const workdir = repository(t)
    fs.symlinkSync(folder(t), `${workdir}.worktrees`)
    const own = await openWorktree(workdir, 'sub-1')
    assert.deepEqual(await findWorktree(workdir, own.branch, 'sub-1'), own)
    const { path, branch } = own
    assert.deepEqual(listWorktrees(workdir), [{ path, branch }])
  })
})
