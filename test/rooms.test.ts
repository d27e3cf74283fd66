/** Where a line of support lives, and who may use whom. */
import assert from 'node:assert/strict'
import { readdirSync, readFileSync } from 'node:fs'
import { dirname, join, posix } from 'node:path'
import { test } from 'node:test'

const steps = join(import.meta.dirname, '..', 'steps')

/** Rooms, and the rooms that each may use; `session.ts` stands on top of them. */
const USES: Record<string, string[]> = {
  base: [],
  terminal: ['base'],
  tools: ['base'],
  model: ['base', 'tools', 'terminal'],
  run: ['base', 'tools', 'terminal'],
  agents: ['base', 'tools', 'terminal'],
  cli: ['base'],
}

/** Files under steps/, by their path there, and what each imports of them, types too. */
const files = new Map(
  readdirSync(steps, { recursive: true })
    .map((path) => String(path).replaceAll('\\', '/'))
    .filter((path) => path.endsWith('.ts'))
    .map((path) => {
      const source = readFileSync(join(steps, path), 'utf8')
      const found = source.matchAll(/^(?:\} from |(?:im|ex)port .*)'(\.[^']+)'/gm)
      const imports = Array.from(found, ([, to]) => posix.join(dirname(path), to))
      return [path, { lines: source.split('\n'), imports }] as const
    }),
)
const support = [...files.keys()].filter((path) => path.startsWith('support/'))
const importsOf = (path: string) => files.get(path)?.imports ?? assert.fail(path)
const linesOf = (paths: Iterable<string>) =>
  [...paths].reduce((sum, path) => sum + (files.get(path)?.lines.length ?? 0) - 1, 0)

/** All that a file reaches, itself included; a circle on the way is a fault. */
function reach(path: string, way: string[] = [], seen = new Set<string>()): Set<string> {
  assert(!way.includes(path), `a circle: ${[...way, path].join(' → ')}`)
  for (const to of importsOf(path)) if (!seen.has(to)) reach(to, [...way, path], seen)
  return seen.add(path)
}

test('each file stands in a room, and uses only the rooms that it may', () => {
  for (const path of support) {
    if (path === 'support/session.ts') continue
    const [, room, file] = path.split('/')
    assert(file && USES[room], `${path} stands in no room`)
    for (const to of importsOf(path)) {
      const [top, other] = to.split('/')
      assert.equal(top, 'support', `${path} imports ${to}`)
      assert([room, ...USES[room]].includes(other), `${path} uses ${to}`)
    }
  }
})

test('there is no circle among files', () => {
  for (const path of files.keys()) reach(path)
})

test('Part 1 reaches nothing of agents/ or cli/', () => {
  for (const path of files.keys()) {
    if (!/^0[1-4]-/.test(path)) continue
    const reached = [...reach(path)].filter((to) => /^support\/(agents|cli)\//.test(to))
    assert.deepEqual(reached, [], path)
  }
})

test('no file is long or wide, and all together stay small', () => {
  for (const path of support) {
    assert(linesOf([path]) <= 250, `${path} has ${linesOf([path])} lines`)
    for (const line of files.get(path)?.lines ?? []) {
      assert([...line].length <= 90, `${path}: ${line}`)
    }
  }
  assert(linesOf(support) <= 3300, `support has ${linesOf(support)} lines`)
  const [four = ''] = [...files.keys()].filter((path) => path.startsWith('04-'))
  const reached = [...reach(four)].filter((path) => path !== four)
  assert(reached.length > 10, 'imports are found')
  assert(linesOf(reached) <= 2500, `step 04 reaches ${linesOf(reached)} lines`)
})
