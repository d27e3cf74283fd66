/**
 * What a run must do, as folders of lanes: the model's turns in `scenarios/` are written by
 * hand, the rest is what came of them. Each is replayed and must come out byte for byte;
 * `npm run record test/scenarios/NAME` writes it anew. A wrong result could be stable, so
 * the table says what the parent is told in each.
 */
import assert from 'node:assert/strict'
import { spawnSync } from 'node:child_process'
import { readdirSync } from 'node:fs'
import { join } from 'node:path'
import { describe, test } from 'node:test'
import { readFolder } from '../steps/support/base/lane-file.ts'
import { filesOf, type Json, leanEnvironment, makeRoot, runStep } from './kit.ts'

type Row = {
  code?: number
  stderr?: string
  /** By prompt, how each result begins, lines parted by ` | `; `✗` is `is_error`. */
  told?: Record<string, string[]>
}

const FOUR = 'bash, read_file, write_file, edit_file'
const BROKE = '400 invalid_request_error: Your credit balance is too low.'
const DENIED = '401 authentication_error: invalid x-api-key'
const CAPPED = 'capped at turn 30, unfinished'
const LAST_WORDS = ' | Its last words, no report: | '
const NEW_WORDS = ' | Its report: | New words. | '

const ROWS: Record<string, Row> = {
  '04-subagent.ends': {
    told: {
      'A report.': ['First part, second part.'],
      'An empty last reply.': [
        '✗ No report: its last reply was empty. Its last words: I look.',
      ],
      'An empty reply at once.': [
        '✗ No report: its last reply was empty. Its last words: none',
      ],
      'A refusal.': ['✗ No report: ended by refusal. Its last words: I will not.'],
      'A refusal without a word.': [
        '✗ No report: ended by refusal. Its last words: I look.',
      ],
      'A cut report.': ['✗ No report: ended by max_tokens. Its last words: Half a rep'],
      'A cut call.': ['It is not there.'],
      'The cap.': ['✗ No report: stopped after 30 turns. Its last words: Turn 30.'],
      'A crash.': [`✗ ${BROKE}`],
      'Tools that there are not.': [`✗ No tool fly, only ${FOUR}, task.`, 'Alone.'],
      'Wrong inputs.': [
        '✗ task.prompt is missing: it is required, a string',
        '✗ task.prompt must be a string, not 5',
        '✗ task.prompt must be text, not blank',
      ],
    },
  },
  '04-subagent.own': {
    code: 1,
    stderr: [
      "The model's last reply was empty.",
      'The answer ended early: refusal.',
      'The answer ended early: max_tokens.',
      BROKE,
      '',
    ].join('\n'),
  },
  '06-tool-gate.rules': {}, // told in gate.test.ts
  '07-stop.timeouts': {
    told: {
      'Two children.': ['✗ The subagent timed out after 1000 ms.', 'Report.'],
      'Wrong times.': [
        '✗ task.timeoutMs must be at least 1000, not 999',
        '✗ task.timeoutMs must be at least 1000, not 0',
        '✗ task.timeoutMs must be at least 1000, not -1',
        '✗ task.timeoutMs must be an integer, not 1000.5',
        '✗ task.timeoutMs must be at most 2147483647, not 2147483648', // fires at once
      ],
    },
  },
  '08-failure.ends': {
    told: {
      completed: ['completed (2 turns) | Its report: | First part, second part. | '],
      capped: [
        `✗ ${CAPPED} | Its closing answer, as asked: | Found one; two is left. | `,
      ],
      'capped, and calls again': [`✗ ${CAPPED} | Its closing answer, as asked: | One`],
      'capped, and cut': [`✗ ${CAPPED}${LAST_WORDS}Found on | `],
      'timed out': [`✗ timed_out after 1000 ms, unfinished (1 turn)${LAST_WORDS}I look.`],
      empty: [`✗ crashed: its last reply was empty (1 turn)${LAST_WORDS}I look. | `],
      refused: [`✗ crashed: the model refused (2 turns)${LAST_WORDS}I will not. | `],
      cut: [`✗ crashed: cut by max_tokens (2 turns)${LAST_WORDS}Half a rep | `],
      'cut to nothing': [`✗ crashed: cut by max_tokens (1 turn)${LAST_WORDS}I look. | `],
      'a cut call': ['completed (2 turns) | Its report: | Then so. | '],
      overloaded: [`✗ crashed: 529 overloaded_error: Overloaded (1 turn)${LAST_WORDS}`],
      'without a word': [`✗ crashed: ${DENIED} (0 turns) | No other words. | `],
      'one of two': [
        `✗ crashed: ${BROKE} (1 turn)${LAST_WORDS}I look. | `,
        'completed (1 turn) | Its report: | Mine is done. | ',
      ],
      'an agent that there is not': ['✗ No agent nobody, only scout.'],
    },
  },
  '09-resume.ends': {
    told: {
      'none yet': ['✗ There is no sub-1 in this run yet, nor another.'],
      'a crash': [`✗ crashed: ${BROKE} (1 turn)${LAST_WORDS}Old words.`],
      'after the crash': [`completed (1 turn)${NEW_WORDS}`],
      'a cap': [`✗ ${CAPPED} | Its closing answer, as asked: | Old words.`],
      'after the cap': [`completed (2 turns)${NEW_WORDS}`],
      'a timeout': [`✗ timed_out after 1000 ms, unfinished (1 turn)${LAST_WORDS}Old`],
      'after the timeout': [`completed (1 turn)${NEW_WORDS}`],
      'once more, and a crash': [`✗ crashed: ${BROKE} (0 turns) | No other words.`],
      'what cannot be': [
        '✗ A resumed child keeps its agent: leave agent out.',
        ...['sub-9', 'parent', '../x', 'sub-1.log', 'x/../sub-1'].map(
          (name) => `✗ There is no ${name} in this run, only sub-1, sub-2, sub-3.`,
        ),
      ],
      'blank is none': ['completed (1 turn) | Its report: | A new child. | '],
    },
  },
}

const folder = join(import.meta.dirname, 'scenarios')

/** What tools said, by prompt: one line per result. */
function toldIn(messages: Json[]): Record<string, string[]> {
  const told: Record<string, string[]> = {}
  let prompt = ''
  for (const { role, content } of messages) {
    if (typeof content === 'string') prompt = content
    else if (role === 'user') {
      told[prompt] = content.map(({ content: said, is_error }: Json) => {
        return (is_error ? '✗ ' : '') + said.split(/\n+/).join(' | ')
      })
    }
  }
  return told
}

test('every scenario has its row', () => {
  assert.deepEqual(readdirSync(folder).sort(), Object.keys(ROWS).sort())
})

describe('scenarios', { concurrency: 2 }, () => {
  const root = makeRoot()
  for (const [name, { code = 0, stderr = '', told = {} }] of Object.entries(ROWS)) {
    test(name, async () => {
      const path = join(folder, name)
      const [{ header, messages }] = readFolder(path)
      assert.match(header.note, /written by hand/)
      const said = toldIn(messages)
      for (const [prompt, expected] of Object.entries(told)) {
        const begins = said[prompt]?.map((line, i) =>
          line.slice(0, expected[i]?.length ?? 0),
        )
        assert.deepEqual(begins, expected, prompt)
      }
      const [step] = name.split('.')
      const run = await runStep({ step, root, args: ['--replay', path] })
      assert.deepEqual([run.code, run.stderr], [code, stderr])
      assert.doesNotMatch(run.stdout, /not your edit/)
      assert.deepEqual(filesOf(join(root, 'logs', name)), filesOf(path))
    })
  }
})

const { typescript } = process.features as { typescript?: unknown }
const plain = { skip: !typescript && 'needs a Node that runs TypeScript, 22.18 or later' }
test('04 runs by node alone, with the same log', plain, (t) => {
  const root = makeRoot(t)
  const options = { cwd: root, env: leanEnvironment(root) }
  const run = spawnSync(process.execPath, ['steps/04-subagent.ts'], options)
  assert.deepEqual([run.status, String(run.stderr)], [0, ''])
  const logs = filesOf(join(root, 'logs', '04-subagent'))
  assert.deepEqual(logs, filesOf(join(root, 'logs', 'recorded', '04-subagent')))
})
