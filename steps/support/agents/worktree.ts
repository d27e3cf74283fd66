/** A child's own git worktree: made from HEAD, removed when nothing came of it. */
import { execFile, execFileSync } from 'node:child_process'
import { existsSync, readdirSync, realpathSync } from 'node:fs'
import { join, relative } from 'node:path'
import { promisify } from 'node:util'
import { complain } from '../terminal/screen.ts'

export type Worktree = {
  path: string
  branch: string // that it was made with
  unseen?: string // what has changed in the working directory since its first commit
}

const MOST_NAMES = 8

const run = promisify(execFile)
let queue: Promise<unknown> = Promise.resolve()

/**
 * One git command at a time: worktrees share a repository, and its locks. Without the
 * reader's git variables, in the language that is read here.
 */
function git(cwd: string, ...args: string[]): Promise<string> {
  const all = ['-c', 'core.quotePath=false', ...args]
  const options = { cwd, env: gitEnvironment(), maxBuffer: 1 << 26 }
  const result = queue.then(async () => {
    try {
      return (await run('git', all, options)).stdout.trimEnd()
    } catch (cause) {
      // Not the message, which holds the command: no hash is to reach a model.
      const { code, stderr } = cause as { code: string | number; stderr: string }
      const said = stderr.trim().split('\n').at(-1) || code
      throw new Error(`git ${args[0]} failed: ${said}`, { cause })
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
  const refs = (await git(workdir, 'for-each-ref', '--format=%(refname)')).split('\n')
  const isTaken = ({ path, branch }: Worktree) =>
    existsSync(path) || refs.includes(`refs/heads/${branch}`)
  const folder = `${workdir}.worktrees`
  let tree = treeIn(folder, lane)
  for (let n = 2; isTaken(tree); n++) tree = treeIn(folder, `${lane}-${n}`)
  const unseen = await changedSince('HEAD', workdir)
  await git(workdir, 'worktree', 'add', '-q', '-b', tree.branch, tree.path, 'HEAD')
  return { ...tree, path: realpathSync(tree.path), unseen }
}

const treeIn = (folder: string, name: string): Worktree => ({
  path: join(folder, name),
  branch: `agent/${name}`,
})

/** Names the files in `folder` that differ from a commit, or are new and not ignored. */
async function changedSince(commit: string, folder: string): Promise<string> {
  const tracked = await git(folder, 'diff', '--name-only', '--no-renames', commit)
  const fresh = await git(folder, 'ls-files', '--others', '--exclude-standard')
  return listed(`${tracked}\n${fresh}`)
}

function listed(lines: string): string {
  const names = lines.split('\n').filter(Boolean).sort()
  const more = names.splice(MOST_NAMES).length
  return names.join(', ') + (more > 0 ? ` and ${more} more` : '')
}

async function checkRepository(workdir: string): Promise<void> {
  const asked = git(workdir, 'rev-parse', '--show-toplevel', 'HEAD')
  const top = await asked.then((said) => said.split('\n')[0]).catch((error) => error)
  if (top.cause?.code === 'ENOENT')
    throw new Error('worktree needs git, which is not here.')
  if (typeof top !== 'string' || realpathSync(top) !== realpathSync(workdir))
    throw new Error('worktree works only at the top of a git repository with a commit.')
}

/**
 * The worktree that was made for a lane, on a branch that it may have left since.
 *
 * @throws {Error} when it is gone
 */
export async function findWorktree(workdir: string, branch: string, lane: string) {
  const own = listWorktrees(workdir).find((tree) => tree.branch === branch)
  if (!own) throw new Error(`${lane} cannot go on: its worktree is gone.`)
  const base = await git(workdir, 'merge-base', 'HEAD', branch)
  return { ...own, unseen: await changedSince(base, workdir) }
}

/** The worktrees beside the working directory that earlier runs left, killed ones too. */
export function listWorktrees(workdir: string): Worktree[] {
  const folder = `${workdir}.worktrees`
  const names = existsSync(folder) ? readdirSync(folder).sort() : []
  const trees = names.map((name) => treeIn(realpathSync(folder), name))
  return trees.filter(({ path }) => existsSync(join(path, '.git')))
}

/**
 * Removes a worktree that its child left clean: no changes, and HEAD where it began.
 * Returns what the parent should know, in some sentences, and whether it was kept.
 */
export async function closeWorktree(workdir: string, tree: Worktree) {
  const path = relative(workdir, tree.path).replaceAll('\\', '/')
  const where = /^[\w./-]+$/.test(path) ? path : `"${path}"`
  const { kept, told } = await examine(workdir, tree, where).catch(({ message }) => ({
    kept: true,
    told: `Its worktree ${where}, branch ${tree.branch}, cannot be examined: ${message}.`,
  }))
  if (!tree.unseen) return { kept, told }
  const blind = 'It started from a commit and could not see what has changed here since'
  return { kept, told: `${told} ${blind}, committed or not: ${tree.unseen}.` }
}

async function examine(workdir: string, tree: Worktree, where: string) {
  const { path } = tree
  if (!existsSync(join(path, '.git'))) throw new Error('it is gone')
  const base = await git(workdir, 'merge-base', 'HEAD', tree.branch)
  const head = await git(path, 'rev-parse', 'HEAD')
  const branch = await git(path, 'symbolic-ref', '--short', 'HEAD')
  const dirty = await git(path, 'status', '--porcelain', '--untracked-files=all')
  const others = ['--others', '--exclude-standard', '--ignored', '--directory']
  const ignored = await git(path, 'ls-files', ...others)
  if (branch === tree.branch && head === base && dirty === '' && ignored === '') {
    await git(workdir, 'worktree', 'remove', '--force', path)
    await git(workdir, 'branch', '-q', '-D', branch)
    return { kept: false, told: 'It changed nothing, so its worktree was removed.' }
  }
  const changed = (await changedSince(base, path)) || 'nothing in the end'
  const told = [
    `Its worktree ${where} on branch ${branch} is kept. Changed: ${changed}.`,
    ignored && `Ignored by git, so in no merge: ${listed(ignored)}.`,
    dirty && `Not all of it is committed: git -C ${where} add -A, then commit.`,
    `To look: git diff HEAD...${branch}. To take it over: git merge -q ${branch}.`,
  ]
  return { kept: true, told: told.filter(Boolean).join(' ') }
}

/** Makes a folder a repository with one commit; does nothing where there is no git. */
export function startRepository(folder: string): void {
  const commands = [
    'init -q',
    'config user.name step',
    'config user.email step@example.invalid',
    'config commit.gpgsign false',
    'config core.autocrlf false',
    'config core.hooksPath no-hooks', // nor those of a template
    'add -A',
    'commit -q -m start',
  ]
  const options = { cwd: folder, env: gitEnvironment(), stdio: 'ignore' } as const
  try {
    for (const command of commands) execFileSync('git', command.split(' '), options)
  } catch (error) {
    const { code, message } = error as NodeJS.ErrnoException
    if (code !== 'ENOENT') complain(`No repository could be made here: ${message}`)
  }
}
