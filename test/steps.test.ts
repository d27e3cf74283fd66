/** The rules that keep a step readable alone and comparable with the step it builds on. */
import assert from 'node:assert/strict'
import { readdirSync, readFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { test } from 'node:test'

const root = dirname(import.meta.dirname)
const names = readdirSync(join(root, 'steps')).filter((name) =>
  /^\d\d-.*\.ts$/.test(name),
)
const MOST_LINES = [90, 140, 180, 200, 250, 280, 330, 400, 450, 500]
const PACKAGES = ['@anthropic-ai/sdk', 'dotenv', 'pino']

type Step = { source: string; header: string; statements: Map<string, string> }

function readStep(name: string): Step {
  const source = readFileSync(join(root, 'steps', name), 'utf8')
  return { source, ...parseStep(source) }
}

const START =
  /\n\n(?=(?:const|let|type|class|function|async|await|session\.\w+|\/\*\*|\/\/)[\s(])/

/** Statements begin at column 0 behind a blank line; the name of one is what it declares. */
function parseStep(source: string) {
  const header = /^\/\*\*\n[\s\S]*?\n \*\/\n/.exec(source)?.[0] ?? ''
  const body = source.slice(header.length).replace(/^import [\s\S]*?from '[^']+'\n/gm, '')
  const statements = new Map<string, string>()
  for (const chunk of body.trim().split(START)) {
    const code = chunk.replace(/^(\/\*\*[\s\S]*?\*\/\n|\/\/.*\n)+/, '')
    const declared = /^(?:async )?(?:const|let|type|function|class) (\w+)/.exec(code)?.[1]
    const name = declared ?? /^(?:await )?([\w.]+)/.exec(code)?.[1]
    assert(name, `no name for the statement that begins with: ${code.slice(0, 60)}`)
    assert(!statements.has(name), `${name} stands twice`)
    const more = code.match(/\n(const|let|type|function|async function|class|await) /)
    assert(!more, `no blank line before a statement within ${name}`)
    statements.set(name, chunk)
  }
  return { header, statements }
}

/** What differs between two steps, by the names of their statements. */
function changesBetween(base: Step, step: Step): string[] {
  const all = [...base.statements.keys(), ...step.statements.keys()]
  const differs = (name: string) =>
    base.statements.get(name) !== step.statements.get(name)
  return [...new Set(all)].filter(differs).sort()
}

function part(header: string, label: string): string | undefined {
  const lines = header.split('\n').map((line) => line.replace(/^ \* ?/, ''))
  const start = lines.findIndex((line) => line.startsWith(`${label}  `))
  if (start < 0) return undefined
  const end = lines.findIndex((line, i) => i > start && !line.startsWith('   '))
  return lines.slice(start, end).join(' ').slice(label.length).replace(/\s+/g, ' ').trim()
}

test('there are steps to check', () => assert(names.length >= 4))

for (const name of names) {
  const number = name.slice(0, 2)
  const step = readStep(name)

  test(`${name}: the header has its parts`, () => {
    assert.match(step.header, new RegExp(`^/\\*\\*\n \\* ${number} · [A-Z].*: `))
    assert.match(step.header, /\bafter\b|──/, 'a drawing of the arrays')
    assert.equal(part(step.header, 'Run'), `npx tsx steps/${name}`)
    const log = part(step.header, 'Log') ?? ''
    assert(log.includes(`logs/${name.replace('.ts', '')}`), `Log: ${log}`)
  })

  test(`${name}: what differs from its base is what Changes names`, () => {
    const base = part(step.header, 'Builds on')
    if (number === '01') return assert.equal(base, 'nothing')
    const baseName = names.find((other) => other.startsWith(`${base}-`))
    assert(baseName, `Builds on ${base}`)
    const named = (part(step.header, 'Changes') ?? '').replace(/\([^)]*\)/g, '')
    const list = named.split(',').map((entry) => entry.trim())
    assert.deepEqual(list.sort(), changesBetween(readStep(baseName), step))
  })

  test(`${name}: statements that carry over keep their order`, () => {
    const base = part(step.header, 'Builds on')
    const baseName = names.find((other) => other.startsWith(`${base}-`))
    if (!baseName) return
    const before = [...readStep(baseName).statements.keys()]
    const kept = [...step.statements.keys()].filter((key) => before.includes(key))
    assert.deepEqual(
      kept,
      before.filter((key) => kept.includes(key)),
    )
  })

  test(`${name}: short, narrow, standalone`, () => {
    const lines = step.source.split('\n')
    const most = MOST_LINES[Number(number) - 1]
    assert(lines.length - 1 <= most, `${lines.length - 1} lines, at most ${most}`)
    for (const [i, line] of lines.entries()) {
      assert([...line].length <= 90, `line ${i + 1} has ${[...line].length} columns`)
    }
    for (const [, from] of step.source.matchAll(/ from '([^']+)'/g)) {
      const packaged = PACKAGES.some((it) => from === it || from.startsWith(`${it}/`))
      assert(packaged || /^node:|^\.\/support\//.test(from), `imports ${from}`)
    }
  })

  test(`${name}: one function pushes`, () => {
    const pushing = [...step.statements].filter(([, code]) => /\.push\(/.test(code))
    assert.deepEqual(
      pushing.map(([declared]) => declared),
      ['push'],
    )
    assert.equal([...step.statements.keys()][0], 'session')
    assert.equal(
      step.statements.get('session'),
      'const session = openSession(import.meta.filename)',
    )
  })

  if (number >= '04') {
    test(`${name}: the hinge stands alone on its line`, () => {
      assert.match(step.source, /\n {2}const subMessages: MessageParam\[\] = \[\]\n/)
      assert.match(step.source, /\nconst MAX_TURNS = 30\n/)
    })
  }
}

test('the check sees a change that is not named, and a name that did not change', () => {
  const base = {
    source: '',
    ...parseStep('/**\n * x\n */\nconst A = 1\n\nconst B = 2\n'),
  }
  const step = {
    source: '',
    ...parseStep('/**\n * x\n */\nconst A = 1\n\nconst B = 3\n'),
  }
  assert.deepEqual(changesBetween(base, step), ['B'])
  assert.deepEqual(changesBetween(base, base), [])
})

test('support imports no step, and no line of it is wider than 90 columns', () => {
  const folder = join(root, 'steps', 'support')
  for (const name of readdirSync(folder).filter((name) => name.endsWith('.ts'))) {
    const source = readFileSync(join(folder, name), 'utf8')
    assert.doesNotMatch(source, / from '\.\.\/\d\d-/, name)
    for (const line of source.split('\n'))
      assert([...line].length <= 90, `${name}: ${line}`)
    assert(source.split('\n').length <= 251, `${name} is longer than 250 lines`)
  }
})
