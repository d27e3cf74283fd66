/** `worktree: true`: a child's work apart from all others, until somebody merges it. */
import assert from 'node:assert/strict'
import { execFileSync, execSync } from 'node:child_process'
import * as fs from 'node:fs'
import { tmpdir } from 'node:os'
import { basename, delimiter, join } from 'node:path'
import { describe, test } from 'node:test'
import { setTimeout as sleep } from 'node:timers/promises'
import {
  closeWorktree,
  findWorktree,
  openWorktree,
} from '../steps/support/agents/worktree.ts'
import {
  about,
  byPrompt,
  envFile,
  laneOf,
  logFolder,
  promptOf,
  resultsIn,
  runLive,
  serve,
} from './live.ts'
import {
  calls,
  type Handler,
  type Json,
  makeRoot,
  runStep,
  stall,
  startStep,
  text,
} from './server.ts'

const STEP = '10-parallel'
const CHANGED = '\n\n(Files may have changed: read again what you rely on.)'
const posix = { skip: process.platform === 'win32' && 'needs signals and scripts' }

const tree = (prompt: string, more: Json = {}) => ({
  name: 'task',
  input: { prompt, worktree: true, ...more },
})
const resume = (lane: string, prompt: string) => ({
  name: 'task',
  input: { prompt, resume: lane },
})
const bash = (command: string) => ({ name: 'bash', input: { command } })
const read = (path: string) => ({ name: 'read_file', input: { path } })
const write = (path: string, content: string) => ({
  name: 'write_file',
  input: { path, content },
})
const edit = (old_text: string, new_text: string) => ({
  name: 'edit_file',
  input: { path: 'README.md', old_text, new_text },
})
const commit = [bash('git add -A'), bash('git commit -q -m "work"')]

type Context = { after: (done: () => void) => void }

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
function repository(t: Context, name: string): string {
  const path = join(folder(t), name)
  fs.mkdirSync(join(path, 'sub'), { recursive: true })
  fs.writeFileSync(join(path, 'README.md'), 'one\n')
  fs.writeFileSync(join(path, 'where.mjs'), 'console.log(process.cwd())\n')
  fs.writeFileSync(join(path, 'sub', 'in.md'), 'inside\n')
  git(path, 'init', '-q')
  for (const [key, value] of Object.entries({ name: 'me', email: 'me@example.com' })) {
    git(path, 'config', `user.${key}`, value)
  }
  git(path, 'add', '-A')
  git(path, 'commit', '-q', '-m', 'start')
  return path
}

const worktreesOf = (workdir: string) => {
  const path = `${workdir}.worktrees`
  return fs.existsSync(path) ? fs.readdirSync(path).sort() : []
}
const branchesOf = (workdir: string) =>
  git(workdir, 'branch', '--list', 'agent/*', '--format=%(refname:short)')
    .split('\n')
    .filter(Boolean)

async function until(condition: () => boolean): Promise<void> {
  for (const start = Date.now(); !condition(); await sleep(10)) {
    if (Date.now() - start > 15_000) throw new Error(`Waited in vain for ${condition}`)
  }
}

describe('a worktree', { concurrency: 4 }, () => {
  test('hides what a child does, is kept or removed, and can be merged', async (t) => {
    const workdir = repository(t, 'my app')
    let met = () => {}
    const bothWrote = new Promise<void>((done) => {
      met = done
    })
    let wrote = 0
    const make =
      "import { writeFileSync } from 'node:fs'\nwriteFileSync('名 前 b.md', 'x')\n"
    const script = byPrompt({
      go: [
        calls(
          ...[tree('a'), tree('b'), tree('clean'), tree('names'), tree('back')],
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
        calls(write('note.md', 'of b'), edit('one', 'two')),
        calls(read('note.md'), ...commit),
        text('B is done.'),
      ],
      clean: [calls(read('README.md')), text('Nothing to do.')],
      names: [
        calls(write('make.mjs', make), bash('node make.mjs'), ...commit),
        calls(write('more/late.md', 'not committed')),
        text('Names are done.'),
      ],
      back: [
        calls(edit('one', 'three'), ...commit, edit('three', 'one'), ...commit),
        text('All is as it was.'),
      ],
      next: [
        calls(resume('sub-1', 'a again'), resume('sub-3', 'clean again')),
        calls(
          ...[bash('git diff HEAD...agent/sub-2'), bash('git merge -q agent/sub-2')],
          ...[bash('git -C "../my app.worktrees/sub-5" add -A'), read('README.md')],
        ),
        text('So.'),
      ],
      [`a again${CHANGED}`]: [
        calls(read('note.md'), bash('node where.mjs'), write('second.md', 'x')),
        text('A has done more.'),
      ],
    })
    const handler: Handler = async (body, n) => {
      if (/^[ab]$/.test(promptOf(body)) && body.messages.length === 3) {
        wrote += 1
        if (wrote === 2) met()
        await bothWrote
      }
      return script(body, n)
    }
    const run = await runLive(t, handler, {
      step: STEP,
      env: { WORKDIR: workdir },
      stdin: 'go\nnext\n',
    })
    assert.equal(run.code, 0, run.stderr)
    const results = resultsIn(about(run.requests, 'go')[1])
    const [a, b, clean, names, back, nobody] = results.map(({ content }) => content)
    for (const { content } of results) assert.doesNotMatch(content, /\b[0-9a-f]{7,}\b/)

    // Each sees its own file, and its own directory only.
    const pathOf = (lane: string) => join(`${workdir}.worktrees`, lane)
    const [seen, where] = resultsIn(about(run.requests, 'a')[2])
    assert.equal(seen.content, 'of a')
    assert.equal(where.content.trim(), pathOf('sub-1'))
    assert.equal(resultsIn(about(run.requests, 'b')[2])[0].content, 'of b')
    const { system } = about(run.requests, 'a')[0]
    assert(system.startsWith(`You are a coding agent in ${pathOf('sub-1')}.\n`))
    assert(!system.includes(`${workdir}.\n`), 'of the main directory it is not told')
    assert.match(
      laneOf(run, 'sub-1').header.system,
      /^You are a coding agent in <workdir>\./,
    )
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
    assert(back.includes(kept('sub-5', 'nothing in the end')), back)
    assert.equal(nobody, 'No agent nobody, only scout.')
    const lanes = ['sub-1', 'sub-2', 'sub-4', 'sub-5']
    assert.deepEqual(worktreesOf(workdir), lanes, 'and nothing else is left')
    assert.deepEqual(
      branchesOf(workdir),
      lanes.map((lane) => `agent/${lane}`),
    )

    // One that was kept goes on in its place, one that was removed is gone.
    const [first, second] = about(run.requests, `a again${CHANGED}`)
    const [again, still] = resultsIn(second)
    assert.equal(again.content, 'of a')
    assert.equal(still.content.trim(), pathOf('sub-1'))
    assert.equal(first.system, system)
    const [more, gone] = resultsIn(about(run.requests, 'next')[1])
    assert(more.content.includes(kept('sub-1', 'note.md, second.md', open('sub-1'))))
    assert.match(gone.content, /^sub-3 cannot go on: its worktree is gone\.$/)

    // The main directory has what was merged, and nothing before.
    const merged = resultsIn(about(run.requests, 'next')[2])
    assert.equal(merged[1].content, '(no output)')
    assert.equal(merged[3].content.trim(), 'two')
    assert(!fs.existsSync(join(workdir, 'make.mjs')))
    const follow = (command: string) =>
      execSync(command, { cwd: workdir, env: plain, encoding: 'utf8' })
    for (const told of [more.content, names]) {
      const [, add, where] = /committed: (git -C ("[^"]+"|\S+) add -A),/.exec(told) ?? []
      const [, look] = /To look: (git diff \S+)\./.exec(told) ?? []
      const [, merge] = /To take it over: (git merge -q \S+)\./.exec(told) ?? []
      follow(add)
      follow(`git -C ${where} commit -q -m rest`)
      assert.match(follow(look), /^\+x$|not committed/m)
      if (told === names) follow(merge)
    }
    assert.equal(fs.readFileSync(join(workdir, '名 前 b.md'), 'utf8'), 'x')
    assert(fs.existsSync(join(workdir, 'more', 'late.md')))
    assert.equal(fs.readFileSync(join(workdir, 'note.md'), 'utf8'), 'of b')

    // What the parent is told to do is what it may do.
    assert.match(merged[0].content, /^\+of b$/m)
    assert.equal(merged[2].content, '(no output)')
    // Its old results name the place that it still works in, and no other.
    const there = first.messages[4].content[1].content
    assert.equal(there.trim(), pathOf('sub-1'))
  })

  test('where there can be none, the tool says so, and nothing is started', async (t) => {
    const bare = folder(t)
    const empty = folder(t)
    git(empty, 'init', '-q')
    const inside = join(repository(t, 'app'), 'sub')
    const top = repository(t, 'app')
    const cases: [workdir: string, said: string, path?: string][] = [
      [bare, 'a git repository; the working directory is none.'],
      [empty, 'a commit to start from; the repository has none.'],
      [inside, 'the top of a repository, not a folder inside one.'],
      [top, 'git, which is not here.', bare],
    ]
    const ends = cases.map(async ([workdir, said, path]) => {
      const before = fs.readdirSync(join(workdir, '..'))
      const run = await runLive(t, [calls(tree('work')), text('So.')], {
        step: STEP,
        args: ['go'],
        env: { WORKDIR: workdir, ...(path && { PATH: path }) },
      })
      assert.equal(run.code, 0, run.stderr)
      const [{ content, is_error }] = resultsIn(run.requests[1])
      assert.equal(content, `worktree needs ${said}`)
      assert.equal(is_error, true)
      assert.equal(run.requests.length, 2)
      assert.deepEqual(fs.readdirSync(join(run.root, logFolder(run))), ['parent.log'])
      const left = fs.readdirSync(join(workdir, '..'))
      const isOurs = (name: string) => name.startsWith(`${basename(workdir)}.`)
      assert.deepEqual(left.filter(isOurs), before.filter(isOurs))
    })
    await Promise.all(ends)
  })

  test("a reader's git settings do not disturb the offline run", async (t) => {
    const root = makeRoot(t)
    const hooks = join(root, 'hooks')
    fs.mkdirSync(hooks)
    const hook = '#!/bin/sh\necho disturbed\ntouch disturbed.txt\nexit 1\n'
    for (const name of [
      'pre-commit',
      'commit-msg',
      'post-checkout',
      'pre-merge-commit',
    ]) {
      fs.writeFileSync(join(hooks, name), hook, { mode: 0o755 })
    }
    const template = join(root, 'template')
    fs.cpSync(hooks, join(template, 'hooks'), { recursive: true })
    const config = `[commit]\n\tgpgsign = true\n[gpg]\n\tprogram = no-such-program\n
      [core]\n\thooksPath = ${JSON.stringify(hooks)}\n\tquotePath = true
      [init]\n\ttemplateDir = ${JSON.stringify(template)}\n\tdefaultBranch = trunk
      [merge]\n\tff = false\n[column]\n\tui = always\n[color]\n\tui = always\n`
    fs.writeFileSync(join(root, '.gitconfig'), config)
    const other = repository(t, 'other')
    const before = git(other, 'status', '--porcelain')
    const env = {
      GIT_DIR: join(other, '.git'),
      GIT_WORK_TREE: other,
      GIT_INDEX_FILE: join(other, '.git', 'index'),
      GIT_AUTHOR_DATE: 'yesterday',
      GIT_CONFIG_COUNT: '0',
    }
    const run = await runStep({ step: STEP, root, env })
    assert.equal(run.stderr, '')
    assert.equal(run.code, 0)
    const [now, recorded] = ['logs', 'logs/recorded'].map((path) => {
      const at = join(root, path, STEP)
      return Object.fromEntries(
        fs.readdirSync(at).map((name) => [name, fs.readFileSync(join(at, name), 'utf8')]),
      )
    })
    assert.deepEqual(now, recorded)
    assert.equal(git(other, 'status', '--porcelain'), before)
    assert.equal(git(other, 'rev-list', '--count', '--all').trim(), '1')
  })

  test('those of a killed run are named, not in the way, and go on', posix, async (t) => {
    const workdir = repository(t, 'app$$')
    const root = makeRoot(t)
    const config = '[column]\n\tui = always\n[color]\n\tui = always\n'
    fs.writeFileSync(join(root, '.gitconfig'), config)
    let waiting = 0
    const script = byPrompt({
      one: [calls(tree('a'), tree('b'))],
      a: [calls(write('note.md', 'of a')), stall()],
      b: [calls(write('note.md', 'of b')), stall()],
      two: [calls(resume('sub-1', 'go on'), tree('c')), text('So.')],
      [`go on${CHANGED}`]: [calls(read('note.md')), text('It is there.')],
      c: [calls(write('c.md', 'x')), text('C.')],
      three: [calls(tree('d')), text('So.')],
      d: [calls(write('d.md', 'x')), text('D.')],
    })
    const server = await serve(t, (body, n) => {
      if (/^[ab]$/.test(promptOf(body)) && body.messages.length === 3) waiting += 1
      return script(body, n)
    })
    const options = {
      step: STEP,
      root,
      env: { WORKDIR: workdir },
      dotenv: envFile(server.url),
    }
    const killed = startStep({ ...options, args: ['one'] })
    await until(() => waiting === 2)
    killed.child.kill('SIGKILL')
    await killed.result

    const next = await runStep({ ...options, args: ['--continue', 'two'] })
    assert.equal(next.code, 0, next.stderr)
    for (const lane of ['sub-1', 'sub-2']) {
      const path = join(`${workdir}.worktrees`, lane)
      const line = `A worktree is left from an earlier run: ${path}, branch agent/${lane}\n`
      assert(next.stdout.includes(line), next.stdout)
    }
    const requests = server.requests.map(({ body }) => body)
    const { system } = about(requests, 'c')[0]
    const path = join(`${workdir}.worktrees`, 'sub-3')
    const child = about(requests, `go on${CHANGED}`)
    assert.match(child[0].messages[3].content, /^go on/)
    assert.equal(resultsIn(child[1])[0].content, 'of a')
    const [one, two] = resultsIn(about(requests, 'two')[1])
    assert.match(one.content, /It is there\..*sub-1" on branch agent\/sub-1 is kept/s)
    assert.match(two.content, /worktrees\/sub-3" on branch agent\/sub-3 is kept/)

    const last = await runStep({ ...options, args: ['three'] })
    assert.equal(last.code, 0, last.stderr)
    assert.match(last.stdout, /agent\/sub-1\n.*agent\/sub-2\n.*agent\/sub-3\n/)
    const [three] = resultsIn(
      about(
        server.requests.map(({ body }) => body),
        'three',
      )[1],
    )
    assert.match(three.content, /worktrees\/sub-1-2" on branch agent\/sub-1-2 is kept/)
    assert.match(three.content, /Changed: d\.md\..*resume "sub-1"\.$/s)
    assert.deepEqual(server.refused, [])
    const names = ['sub-1', 'sub-1-2', 'sub-2', 'sub-3']
    assert.deepEqual(worktreesOf(workdir), names)
    assert.match(last.stdout, /^10-parallel, live: /, 'the first line says what this is')
    assert(system.startsWith(`You are a coding agent in ${path}.\n`), system)
  })

  test('Ctrl+C while git makes one: the child does not begin', posix, async (t) => {
    const workdir = repository(t, 'app')
    const root = makeRoot(t)
    const bin = join(root, 'bin')
    fs.mkdirSync(bin)
    const real = execSync('command -v git', { encoding: 'utf8' }).trim()
    const slow = `#!/bin/sh
      case "$*" in *'worktree add'*) touch '${root}/adding'; sleep 0.5;; esac
      exec '${real}' "$@"`
    fs.writeFileSync(join(bin, 'git'), slow, { mode: 0o755 })
    const server = await serve(t, byPrompt({ go: [calls(tree('a'))], a: [stall()] }))
    const run = startStep({
      step: STEP,
      args: ['go'],
      root,
      env: { WORKDIR: workdir, PATH: `${bin}${delimiter}${process.env.PATH}` },
      dotenv: envFile(server.url),
    })
    await until(() => fs.existsSync(join(root, 'adding')))
    run.child.kill('SIGINT')
    const hung = setTimeout(() => run.child.kill('SIGKILL'), 15_000)
    const { code, stdout } = await run.result
    clearTimeout(hung)
    assert.equal(code, 130)
    assert.equal(server.requests.length, 1)
    const { messages } = laneOf({ ...(await run.result), stdout })
    assert.match(messages.at(-1)?.content[0].content, /^aborted by the user|^Stopped by/)
    assert.deepEqual(worktreesOf(workdir), [])
    assert.deepEqual(branchesOf(workdir), [])
  })
})

describe('closing one', { concurrency: 4 }, () => {
  test('what git refuses is said in one line', async (t) => {
    const workdir = repository(t, 'app')
    git(workdir, 'branch', 'agent')
    await assert.rejects(openWorktree(workdir, 'sub-1'), ({ message }) => {
      assert.match(message, /^git worktree failed: .*refs\/heads\/agent.* exists/)
      assert.doesNotMatch(message, /\n|core\.quotePath/)
      return true
    })
    assert.deepEqual(worktreesOf(workdir), [])
  })

  test('a child that has left its branch loses no work, and is told of truly', async (t) => {
    const workdir = repository(t, 'app')
    const own = await openWorktree(workdir, 'sub-1')
    git(own.path, 'checkout', '-q', '-b', 'topic')
    fs.writeFileSync(join(own.path, 'new.md'), 'x')
    git(own.path, 'add', '-A')
    git(own.path, 'commit', '-q', '-m', 'work')
    const { kept, told } = await closeWorktree(workdir, own)
    assert.equal(kept, true)
    assert.match(
      told,
      /on branch topic is kept\. Changed: new\.md\..*git merge -q topic\./,
    )
  })

  test('what git ignores is no reason to throw it away', async (t) => {
    const workdir = repository(t, 'app')
    fs.writeFileSync(join(workdir, '.gitignore'), 'dist/\n*.db\n')
    git(workdir, 'add', '-A')
    git(workdir, 'commit', '-q', '-m', 'ignore')
    const own = await openWorktree(workdir, 'sub-1')
    fs.mkdirSync(join(own.path, 'dist'))
    fs.writeFileSync(join(own.path, 'dist', 'a.js'), 'x')
    fs.writeFileSync(join(own.path, 'b.db'), 'x')
    const { kept, told } = await closeWorktree(workdir, own)
    assert.equal(kept, true)
    assert.match(
      told,
      /Changed: nothing.* Ignored by git, so in no merge: b\.db, dist\/\./,
    )
    assert(fs.existsSync(join(own.path, 'dist', 'a.js')))
  })

  test('one that could not be made leaves nothing behind', posix, async (t) => {
    const workdir = repository(t, 'app')
    const hook = join(workdir, '.git', 'hooks', 'post-checkout')
    fs.mkdirSync(join(workdir, '.git', 'hooks'), { recursive: true })
    fs.writeFileSync(hook, '#!/bin/sh\necho not here >&2\nexit 1\n', { mode: 0o755 })
    await assert.rejects(openWorktree(workdir, 'sub-1'), /git worktree failed: not here/)
    assert.deepEqual(worktreesOf(workdir), [])
    assert.deepEqual(branchesOf(workdir), [])
  })

  test('one that another run makes at the same moment stays', posix, async (t) => {
    const workdir = repository(t, 'app')
    const bin = folder(t)
    // Makes it twice, first for the other run; what other tests ask of git it leaves alone.
    const twice = `#!/bin/sh
PATH='${process.env.PATH}'
case "$PWD $*" in "${workdir} "*"worktree add"*) git "$@" ;; esac
exec git "$@"
`
    fs.writeFileSync(join(bin, 'git'), twice, { mode: 0o755 })
    const before = process.env.PATH
    process.env.PATH = `${bin}${delimiter}${before}`
    t.after(() => {
      process.env.PATH = before
    })
    await assert.rejects(openWorktree(workdir, 'sub-1'), /already exists/)
    assert.deepEqual(worktreesOf(workdir), ['sub-1'])
    assert.deepEqual(branchesOf(workdir), ['agent/sub-1'])
  })

  test('they are found where a link leads, too', posix, async (t) => {
    const workdir = repository(t, 'app')
    const elsewhere = join(folder(t), 'trees')
    fs.mkdirSync(elsewhere)
    fs.symlinkSync(elsewhere, `${workdir}.worktrees`)
    const own = await openWorktree(workdir, 'sub-1')
    assert.deepEqual(await findWorktree(workdir, own.branch, 'sub-1'), own)
  })

  test('a worktree that cannot be examined costs no report', async (t) => {
    const workdir = repository(t, 'app')
    const own = await openWorktree(workdir, 'sub-1')
    fs.rmSync(join(own.path, '.git'))
    const { kept, told } = await closeWorktree(workdir, own)
    assert.equal(kept, true)
    assert.match(
      told,
      /^Its worktree \.\.\/app\.worktrees\/sub-1 cannot be examined: [^\n]*$/,
    )
    fs.rmSync(own.path, { recursive: true })
    assert.deepEqual(await closeWorktree(workdir, own), {
      kept: false,
      told: 'Its worktree is gone; what it committed is on branch agent/sub-1.',
    })
    await assert.rejects(
      findWorktree(workdir, own.branch, 'sub-1'),
      /its worktree is gone/,
    )
  })
})
