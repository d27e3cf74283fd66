/** A child's own git worktree: made from HEAD, removed when nothing came of it. */
import { execFile, execFileSync } from 'node:child_process'
import { existsSync, realpathSync } from 'node:fs'
import { basename, dirname, join, relative } from 'node:path'
import { promisify } from 'node:util'

export type Worktree = { path: string; branch: string }

const run = promisify(execFile)
let queue: Promise<unknown> = Promise.resolve()

/**
 * One git command at a time: worktrees share a repository, and its locks. Without the
 * reader's git variables, in the language that is read here.
 */
function git(cwd: string, ...args: string[]): Promise<string> {
  const result = queue.then(async () => {
    const options = { cwd, env: gitEnvironment(), maxBuffer: 1 << 26 }
    try {
      const all = ['-c', 'core.quotePath=false', ...args]
      return (await run('git', all, options)).stdout.trimEnd()
    } catch (cause) {
      const { code, stderr, message } = cause as NodeJS.ErrnoException & {
        stderr?: string
      }
      const said = (stderr || message).trim().split('\n').at(-1)
      throw Object.assign(new Error(`git ${args[0]} failed: ${said}`, { cause }), {
        code,
      })
    }
  })
  queue = result.catch(() => {})
  return result
}

function gitEnvironment(): NodeJS.ProcessEnv {
  const kept = Object.entries(process.env).filter(([name]) => !/^(GIT_|LC_)/i.test(name))
  return { ...Object.fromEntries(kept), LC_ALL: 'C', GIT_TERMINAL_PROMPT: '0' }
}

/**
 * Makes a worktree for a lane, on a branch of its own from HEAD, beside the working
 * directory.
 *
 * @throws {Error} when git is not there, the working directory is not the top of a
 * repository, or there is no commit yet
 */
export async function openWorktree(workdir: string, lane: string): Promise<Worktree> {
  await checkRepository(workdir)
  const taken = await git(workdir, 'for-each-ref', '--format=%(refname)', 'refs/heads')
  for (let n = 1; ; n++) {
    const name = n === 1 ? lane : `${lane}-${n}`
    const tree = { path: join(`${workdir}.worktrees`, name), branch: `agent/${name}` }
    const isTaken = taken.split('\n').includes(`refs/heads/${tree.branch}`)
    if (isTaken || existsSync(tree.path)) continue
    await addWorktree(workdir, tree)
    return { ...tree, path: realpathSync(tree.path) }
  }
}

async function addWorktree(workdir: string, { path, branch }: Worktree): Promise<void> {
  try {
    await git(workdir, 'worktree', 'add', '-q', '-b', branch, path, 'HEAD')
  } catch (error) {
    // What was there already is somebody else's, such as another run's.
    if (/already exists/.test((error as Error).message)) throw error
    // A hook that fails leaves both, other failures the branch; neither holds work yet.
    await git(workdir, 'worktree', 'remove', path).catch(() => {})
    await git(workdir, 'branch', '-q', '-d', branch).catch(() => {})
    throw error
  }
}

async function checkRepository(workdir: string): Promise<void> {
  const top = await git(workdir, 'rev-parse', '--show-toplevel').catch((error) => {
    if (error.code === 'ENOENT') throw new Error('worktree needs git, which is not here.')
    throw new Error('worktree needs a git repository; the working directory is none.')
  })
  if (realpathSync(top) !== realpathSync(workdir)) {
    throw new Error('worktree needs the top of a repository, not a folder inside one.')
  }
  await git(workdir, 'rev-parse', '--verify', '-q', 'HEAD').catch(() => {
    throw new Error('worktree needs a commit to start from; the repository has none.')
  })
}

/**
 * The worktree that was made for a lane, on a branch that it may have left since.
 *
 * @throws {Error} when it is gone
 */
export async function findWorktree(
  workdir: string,
  branch: string,
  lane: string,
): Promise<Worktree> {
  const trees = await listWorktrees(workdir)
  const own = trees.find(({ path }) => `agent/${basename(path)}` === branch)
  if (!own) throw new Error(`${lane} cannot go on: its worktree is gone.`)
  return { path: own.path, branch }
}

/** The worktrees beside the working directory that earlier runs left, killed ones too. */
export async function listWorktrees(workdir: string): Promise<Worktree[]> {
  const list = await git(workdir, 'worktree', 'list', '--porcelain').catch(() => '')
  const trees = list.split('\n\n').map((entry) => ({
    path: /^worktree (.+)$/m.exec(entry)?.[1] ?? '',
    branch: /^branch refs\/heads\/(.+)$/m.exec(entry)?.[1] ?? 'none',
  }))
  const folder = `${workdir}.worktrees`
  if (!existsSync(folder)) return []
  return trees
    .filter(({ path }) => existsSync(path))
    .map(({ path, branch }) => ({ path: realpathSync(path), branch }))
    .filter(({ path }) => dirname(path) === realpathSync(folder))
}

/**
 * Removes a worktree that its child left clean: no changes, and HEAD where it began.
 * Returns what the parent should know, in a sentence or two, and whether it was kept.
 */
export async function closeWorktree(
  workdir: string,
  tree: Worktree,
): Promise<{ kept: boolean; told: string }> {
  const path = relative(workdir, tree.path).replaceAll('\\', '/')
  const where = /^[\w./-]+$/.test(path) ? path : `"${path}"`
  if (!existsSync(tree.path)) {
    const told = `Its worktree is gone; what it committed is on branch ${tree.branch}.`
    return { kept: false, told }
  }
  try {
    return await examine(workdir, tree, where)
  } catch (error) {
    const told = `Its worktree ${where} cannot be examined: ${(error as Error).message}`
    return { kept: true, told }
  }
}

async function examine(workdir: string, tree: Worktree, where: string) {
  const { path } = tree
  const head = await git(path, 'rev-parse', 'HEAD')
  const branch = await git(path, 'rev-parse', '--abbrev-ref', 'HEAD')
  const base = await git(workdir, 'merge-base', 'HEAD', head)
  const dirty = await git(path, 'status', '--porcelain', '--untracked-files=all')
  const others = ['ls-files', '--others', '--exclude-standard']
  const ignored = await git(path, ...others, '--ignored', '--directory')
  if (branch === tree.branch && head === base && dirty === '' && ignored === '') {
    await git(workdir, 'worktree', 'remove', '--force', path)
    await git(workdir, 'branch', '-q', '-D', branch)
    return { kept: false, told: 'It changed nothing, so its worktree was removed.' }
  }
  const tracked = await git(path, 'diff', '--name-only', base)
  const fresh = await git(path, ...others)
  const files = [...tracked.split('\n'), ...fresh.split('\n')].filter(Boolean).sort()
  const changed = files.join(', ') || 'nothing in the end'
  const told = [
    `Its worktree ${where} on branch ${branch} is kept. Changed: ${changed}.`,
    ignored && `Ignored by git, so in no merge: ${ignored.split('\n').join(', ')}.`,
    dirty && `Not all of it is committed: git -C ${where} add -A, then commit.`,
    branch === 'HEAD'
      ? `It is on no branch: git -C ${where} switch -c NAME, then merge that.`
      : `To look: git diff HEAD...${branch}. To take it over: git merge -q ${branch}.`,
  ]
  return { kept: true, told: told.filter(Boolean).join(' ') }
}

/** Makes a folder a repository with one commit; does nothing where there is no git. */
export function startRepository(folder: string): void {
  const settings = {
    'user.name': 'step',
    'user.email': 'step@example.invalid',
    'commit.gpgsign': 'false',
    'core.autocrlf': 'false',
    'core.hooksPath': 'no-hooks', // nor those of a template
  }
  const commands = [
    ['init', '-q'],
    ['symbolic-ref', 'HEAD', 'refs/heads/main'],
    ...Object.entries(settings).map(([name, value]) => ['config', name, value]),
    ['add', '-A'],
    ['commit', '-q', '-m', 'start'],
  ]
  try {
    const options = { cwd: folder, env: gitEnvironment(), stdio: 'ignore' } as const
    for (const args of commands) execFileSync('git', args, options)
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'ENOENT') throw error
  }
}
