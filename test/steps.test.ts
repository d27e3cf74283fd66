/** The rules that keep a step readable alone and comparable with the step it builds on. */
import assert from 'node:assert/strict'
import { readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { test } from 'node:test'
import { readFolder } from '../steps/support/base/lane-file.ts'
import { bash, describeTools } from '../steps/support/tools/bash.ts'
import { editFile, readFile, writeFile } from '../steps/support/tools/files.ts'

const folder = join(import.meta.dirname, '..', 'steps')
const names = readdirSync(folder).filter((name) => /^\d\d-.*\.ts$/.test(name))
const MOST_LINES = [90, 140, 140, 160, 210, 230, 290, 350, 400, 420, 460, 500]
const PACKAGES = ['@anthropic-ai/sdk', 'dotenv', 'pino']

type Step = { source: string; header: string; statements: Map<string, string> }

const steps = new Map(
  names.map((name) => {
    const source = readFileSync(join(folder, name), 'utf8')
    return [name, { source, ...parseStep(source) }]
  }),
)

/** Statements begin at column 0 behind a blank line, maybe with a comment. */
function parseStep(source: string): Pick<Step, 'header' | 'statements'> {
  const header = /^\/\*\*\n[\s\S]*?\n \*\/\n/.exec(source)?.[0] ?? ''
  const body = source.slice(header.length).replace(/^import [\s\S]*?from '[^']+'\n/gm, '')
  const statements = new Map<string, string>()
  for (const chunk of body.trim().split(/\n\n(?=\w|\/\*\*|\/\/)/)) {
    const code = chunk.replace(/^(\/\*\*[\s\S]*?\*\/\n|\/\/.*\n)+/, '')
    const name = nameOf(code)
    // A template's text stands at column 0, too, and may have blank lines in it.
    if (!name) {
      const [last = ''] = [...statements.keys()].slice(-1)
      const open = statements.get(last) ?? ''
      assert(open.split('`').length % 2 === 0, `no name for: ${code.slice(0, 60)}`)
      statements.set(last, `${open}\n\n${chunk}`)
      continue
    }
    assert(!statements.has(name), `${name} stands twice`)
    const more = code.match(/\n(const|let|type|function|async|class|await|if|for) /)
    assert(!more, `no blank line before a statement within ${name}`)
    statements.set(name, chunk)
  }
  return { header, statements }
}

/** What a statement declares, else the first thing of ours that it uses. */
function nameOf(code: string): string | undefined {
  const declared = /^(?:async )?(?:const|let|type|function|class) (\w+)/.exec(code)?.[1]
  const loop = /^for \(.* of (?:await )?([\w.]+)/.exec(code)?.[1]
  return declared ?? loop ?? /^(?:await |if \()?(session\.\w+)/.exec(code)?.[1]
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

test('there are steps to check', () => {
  assert.deepEqual(
    names.map((name) => Number(name.slice(0, 2))),
    MOST_LINES.map((_, i) => i + 1),
  )
})

for (const [name, step] of steps) {
  const number = name.slice(0, 2)
  const base = part(step.header, 'Builds on')
  const [, before] = [...steps].find(([other]) => other.startsWith(`${base}-`)) ?? []

  test(`${name}: the header has its parts`, () => {
    assert.match(step.header, new RegExp(`^/\\*\\*\n \\* ${number} · [A-Z].*: `))
    assert.match(step.header, /\bafter\b|──/, 'a drawing of the arrays')
    assert.equal(part(step.header, 'Run'), `npx tsx steps/${name}`)
    const log = part(step.header, 'Log') ?? ''
    assert(log.includes(`logs/${name.replace('.ts', '')}`), `Log: ${log}`)
    if (number === '01') assert.equal(base, 'nothing')
    else assert(before, `Builds on ${base}`)
  })

  if (before) {
    test(`${name}: what differs from its base is what Changes names`, () => {
      const named = (part(step.header, 'Changes') ?? '').replace(/\([^)]*\)/g, '')
      const list = named.split(',').map((entry) => entry.trim())
      assert.deepEqual(list.sort(), changesBetween(before, step))
    })

    test(`${name}: statements that carry over keep their order`, () => {
      const [old, now] = [before, step].map(({ statements }) => [...statements.keys()])
      assert.deepEqual(
        now.filter((key) => old.includes(key)),
        old.filter((key) => now.includes(key)),
      )
    })
  }

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

  test(`${name}: one function pushes into a history`, () => {
    const grows = /\b(messages|\w+(Messages|History))\.(push|unshift|splice)\(/
    const pushing = [...step.statements].filter(([, code]) => grows.test(code))
    assert.deepEqual(
      pushing.map(([declared]) => declared),
      number >= '12' ? ['push', 'compact'] : ['push'],
    )
    const [[, first]] = step.statements
    assert.equal(first, 'const session = openSession(import.meta.filename)')
  })

  if (number >= '04') {
    test(`${name}: the hinge stands alone on its line`, () => {
      assert.match(step.source, /\n {2}const subMessages: MessageParam\[\] = \[\]\n/)
      assert.match(step.source, /\nconst MAX_TURNS = 30\n/)
    })
  }
}

test('the check sees a change that is not named, and a name that did not change', () => {
  const step = (b: number) => {
    const source = `/**\n * x\n */\nconst A = \`1\n\n# one\`\n\nconst B = ${b}\n`
    return { source, ...parseStep(source) }
  }
  assert.deepEqual(changesBetween(step(2), step(3)), ['B'])
  assert.deepEqual(changesBetween(step(2), step(2)), [])
})

test('the tools that 02 spells out are the ready ones', () => {
  const ready = [bash, readFile, writeFile, editFile]
  // Its recording is what it sends: whoever edits only one of the two hears of it.
  const [{ header }] = readFolder(join(folder, '..', 'logs', 'recorded', '02-tool-use'))
  assert.deepEqual(header.tools, describeTools(ready))
  const spelled = steps.get('02-tool-use.ts')?.statements.get('TOOLS') ?? ''
  assert.deepEqual(
    Array.from(spelled.matchAll(/ run: (\w+),/g), ([, run]) => run),
    ready.map(({ run }) => run.name),
  )
})
