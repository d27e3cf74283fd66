/** bash: output and ending, limits, what is left behind, the environment. */
import assert from 'node:assert/strict'
import { execFileSync, spawnSync } from 'node:child_process'
import * as fs from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after, afterEach, beforeEach, describe, test } from 'node:test'
import { setTimeout as sleep } from 'node:timers/promises'
import { encodingOf, runBash, SHELL, stopAll } from '../steps/support/tools/bash.ts'
import { posix, until } from './live.ts'

const base = fs.realpathSync(fs.mkdtempSync(join(tmpdir(), 'bash-test-')))
after(() => {
  stopAll()
  fs.rmSync(base, { recursive: true, force: true })
})

let workdir: string
let cases = 0
beforeEach(() => {
  workdir = join(base, `${++cases}`)
  fs.mkdirSync(workdir)
})

const run = (command: string, more: { timeoutMs?: number; signal?: AbortSignal } = {}) =>
  runBash({ command }, { workdir, ...more })
/** A command that runs `code` in Node; it may hold no `"`, `$` or backslash. */
const node = (code: string) => `node -e "${code}"`
/** Makes the file `beat` grow for as long as it lives. */
const BEAT = node("setInterval(() => fs.appendFileSync('beat', '.'), 10)")
const beats = () =>
  fs.statSync(join(workdir, 'beat'), { throwIfNoEntry: false })?.size ?? 0
async function assertDead(): Promise<void> {
  const before = beats()
  assert.ok(before > 0)
  await sleep(100)
  assert.equal(beats(), before)
}

describe('output and ending', () => {
  test('stdout and stderr come in the order they were written', async () => {
    const lines = Array.from({ length: 50 }, (_, i) => `${i}\n`).join('')
    const code = "for (let i = 0; i < 50; i++) fs.writeSync(1 + (i % 3 && 1), i + '|')"
    assert.equal((await run(node(code))).replaceAll('|', '\n'), lines)
  })

  test('exit codes', async () => {
    const endings = {
      '': '',
      'process.exit(3)': '(exit code 3)',
      "console.log('a')": 'a\n',
      "console.log('a'); process.exit(1)": 'a\n(exit code 1)',
      "process.stdout.write('a'); process.exitCode = 1": 'a\n(exit code 1)',
    }
    const outputs = Object.keys(endings).map((code) => run(node(code)))
    assert.deepEqual(await Promise.all(outputs), Object.values(endings))
  })

  test('what the shell itself has to say', posix, async () => {
    const said: [command: string, output: RegExp][] = [
      ['echo a; kill -TERM $$', /^a\n\(killed by SIGTERM\)$/],
      ['echo a\nno-such', /^a\n.*2: no-such: .*not found\n\(exit code 127\)$/],
      ['echo (', /1: syntax error(?:.|\n)*\(exit code 2\)$/i],
      ['-x', /-x: .*not found/],
      ['# nothing', /^$/],
      ['echo $0 $# "$1"', new RegExp(`^${SHELL} 0 \\n$`)],
    ]
    for (const [command, output] of said) assert.match(await run(command), output)
  })

  test('the command is given as it is', posix, async () => {
    const text = `'"' $HOME \\ \`x\` !! %PATH% *`
    assert.equal(await run(`cat <<'END'\n${text}\nEND`), `${text}\n`)
  })

  test('runs in the working directory, and cd does not last', async () => {
    const where = node('console.log(process.cwd())')
    fs.mkdirSync(join(workdir, 'sub'))
    assert.equal(await run(`cd sub && ${where}`), `${join(workdir, 'sub')}\n`)
    assert.equal(await run(where), `${workdir}\n`)
  })

  test('a command that asks gets no answer, and no terminal', async () => {
    const code = "process.stdin.on('end', () => console.log('end')).resume()"
    assert.equal(await run(node(code)), 'end\n')
    if (process.platform === 'win32') return
    assert.match(await run('read answer; echo $?; : < /dev/tty'), /^1\n.*\/dev\/tty/)
  })

  test('what cannot run is an error', async () => {
    await assert.rejects(run('語'.repeat(50_000)), /command is too long/)
    fs.rmSync(workdir, { recursive: true })
    const message = `The working directory ${workdir} is gone`
    await assert.rejects(run('echo a'), { message })
  })
})

describe('much output, strange output', () => {
  test('up to 30 000 bytes come whole', async () => {
    const code = "process.stdout.write('a'.repeat(30000))"
    assert.equal(await run(node(code)), 'a'.repeat(30_000))
  })

  test('of more, the two ends, cut between characters', async () => {
    for (const char of ['a', 'é', '語', '😀']) {
      for (const shift of ['', '-', '--', '---']) {
        const whole = `${shift}${char.repeat(40_000)}${shift}`
        fs.writeFileSync(join(workdir, 'text'), whole)
        const text = await run(process.platform === 'win32' ? 'type text' : 'cat text')
        const [, head, left, tail] = text.split(/^(.*)\n\[(\d+) bytes left out\]\n(.*)$/)
        assert.ok(whole.startsWith(head) && whole.endsWith(tail), `${char} ${shift}`)
        const sizes = [head, tail].map((end) => Buffer.byteLength(end))
        for (const size of sizes) assert.ok(size > 14_995 && size <= 15_000, `${size}`)
        assert.equal(sizes[0] + Number(left) + sizes[1], Buffer.byteLength(whole))
      }
    }
  })

  test('a flood does not fill the memory', posix, async () => {
    const before = process.memoryUsage().rss
    const text = await run('yes | head -c 100000000; echo end; exit 1')
    assert.ok(process.memoryUsage().rss - before < 80_000_000)
    const marked = /^(y\n)+y\n\[99970005 bytes left out\]\n(y\n)+end\n\(exit code 1\)$/
    assert.match(text, marked)
  })

  test('bytes that are no UTF-8', async () => {
    const code = 'process.stdout.write(Buffer.from([97, 0, 255, 0xed, 0xa0, 0xbd, 98]))'
    assert.equal(await run(node(code)), 'a\0\uFFFD\uFFFD\uFFFD\uFFFDb')
    const flood = '[0x80, 97].map((byte) => fs.writeSync(1, Buffer.alloc(40000, byte)))'
    assert.match(await run(node(flood)), /^\uFFFD*\n\[\d+ bytes left out\]\na+$/)
  })

  // biome-ignore format: a table
  const pages: [bytes: number[], page: number, text: string][] = [
    [[0xc4, 0xe3, 0xba, 0xc3], 936, '你好'], [[0x82, 0xa0], 932, 'あ'],
    [[0xa7, 0x41], 950, '你'], [[0xcf], 1251, 'П'], [[0xe9], 437, 'é'],
  ]
  test("a Windows console's own code page", () => {
    for (const [bytes, page, text] of pages) {
      const decoder = new TextDecoder(encodingOf(`Active code page: ${page}\r\n`))
      assert.equal(decoder.decode(Buffer.from(bytes)), text)
    }
  })
})

describe('a command that is stopped', () => {
  test('by the limit: the output so far is kept, the tree is killed', async () => {
    const code = `console.log('so far'); child_process.execSync(process.argv[1])`
    const beat = `const fs = require('fs'); ${BEAT.slice(9, -1)}`
    fs.writeFileSync(join(workdir, 'beat.js'), beat)
    // Long enough for a busy machine to have started what is to be killed.
    const output = await run(`${node(code)} "node beat.js"`, { timeoutMs: 2500 })
    assert.match(output, /^so far\n\(stopped after 2\.5 s: .* in the background\)$/)
    await assertDead()
  })

  test('by the signal of its run, also one that has fired', async () => {
    const controller = new AbortController()
    const { signal } = controller
    const output = run(`${node("console.log('so far')")} && ${BEAT}`, { signal })
    await until(() => beats() > 0)
    controller.abort()
    assert.equal(await output, 'so far\n(stopped: the run was stopped)')
    await assertDead()
    assert.match(await run(BEAT, { signal }), /^\(stopped: the run was stopped\)$/)
  })

  test('in a flood, and takes no other with it', posix, async () => {
    const other = run('sleep 0.4; echo done')
    assert.match(await run('yes', { timeoutMs: 200 }), /^\(stopped after 0\.2 s: /m)
    assert.equal(await other, 'done\n')
  })

  const linux = { skip: process.platform !== 'linux' && 'needs setsid' }
  test('what has left its group lives on, and holds nobody up', linux, async () => {
    const controller = new AbortController()
    const away = `setsid sh -c 'echo $$ > pid; exec sleep 60' & sleep 60`
    const output = run(away, { signal: controller.signal })
    const pid = () => Number(fs.readFileSync(join(workdir, 'pid'), { flag: 'a+' }))
    await until(pid)
    controller.abort()
    assert.match(await output, /^\(stopped/)
    process.kill(pid(), 'SIGKILL')
  })
})

describe('the background', { skip: posix.skip }, () => {
  afterEach(stopAll)

  for (const redirection of ['', '> log 2>&1']) {
    test(`does not hold the command, and dies at the end ${redirection}`, async () => {
      assert.equal(await run(`${BEAT} ${redirection} & echo hi`), 'hi\n')
      assert.equal(await run('echo next'), 'next\n')
      const before = beats()
      await until(() => beats() > before)
      stopAll()
      await assertDead()
    })
  }

  test('the id of a group that has ended is not used again', async (t) => {
    await run('echo hi')
    const kill = t.mock.method(process, 'kill')
    stopAll()
    assert.deepEqual(kill.mock.calls, [])
  })

  test('may go on printing, more than a pipe holds', async () => {
    const print = "for (let i = 0; i < 200; i++) fs.writeSync(1, '.'.repeat(9999))"
    const late = `sleep 0.3; ${node(`${print}; fs.writeFileSync('alive', '')`)}`
    assert.equal(await run(`(${late}) & echo hi`), 'hi\n')
    await until(() => fs.existsSync(join(workdir, 'alive')))
  })

  test('the program ends after its last command, and takes it along', async () => {
    const source = new URL('../steps/support/tools/bash.ts', import.meta.url)
    const script = `import { runBash } from '${source}'
      const [, workdir, command] = process.argv
      console.log(await runBash({ command }, { workdir }))`
    const command = `${BEAT} & while [ ! -e beat ]; do sleep 0.01; done; echo hi`
    const args = ['--import', 'tsx', '--input-type=module', '-e', script]
    const cwd = join(import.meta.dirname, '..')
    const options = { encoding: 'utf8', timeout: 25_000, cwd } as const
    const child = spawnSync(process.execPath, [...args, workdir, command], options)
    assert.deepEqual([child.stdout, child.stderr, child.status], ['hi\n\n', '', 0])
    await assertDead()
  })
})

describe('the environment', () => {
  async function withEnv<T>(variables: Record<string, string>, then: () => Promise<T>) {
    const before = { ...process.env }
    Object.assign(process.env, variables)
    try {
      return await then()
    } finally {
      for (const name of Object.keys(variables)) delete process.env[name]
      Object.assign(process.env, before)
    }
  }

  const hidden =
    // secrets,
    'ANTHROPIC_API_KEY ANTHROPIC_AUTH_TOKEN ANTHROPIC_BASE_URL MY_APIKEY OpenAI_Key ' +
    'AWS_ACCESS_KEY_ID AWS_SECRET_ACCESS_KEY github_token GH_PAT DB_PASSWORD ' +
    'PGPASSWORD MYSQL_PWD SSHPASS GOOGLE_APPLICATION_CREDENTIALS BASIC_AUTH ' +
    'SESSION_COOKIE ' +
    // how this program was started, and what alters output
    'NODE_OPTIONS NODE_PATH NODE_ENV npm_config_x npm_lifecycle_event INIT_CWD ' +
    'NO_COLOR FORCE_COLOR CLICOLOR_FORCE GIT_DIR GIT_AUTHOR_NAME COLUMNS LINES ' +
    'LANG LANGUAGE LC_TIME BASH_ENV ENV CDPATH'
  const kept = 'HOME KEYBOARD SSH_AUTH_SOCK TMPDIR AUTHOR NODE_EXTRA_CA_CERTS'.split(' ')

  test('no secrets, nothing that alters output; the rest stays', async () => {
    const names = [...hidden.split(' '), ...kept]
    const code = `for (const name of '${names}'.split(','))
      if (name in process.env) console.log(name + '=' + process.env[name])`
    const empty = Object.fromEntries(names.map((name) => [name, '']))
    const output = await withEnv(empty, () => run(node(code.replace('\n', ' '))))
    assert.equal(output, kept.map((name) => `${name}=\n`).join(''))
  })

  test('time zone and language are the same everywhere, UTF-8 works', posix, async () => {
    fs.writeFileSync(join(workdir, 'naïve 日本.txt'), '')
    const local = { LC_ALL: 'de_DE.UTF-8', LANGUAGE: 'de', TZ: 'Asia/Tokyo' }
    const command = "ls; cat nothing; date +%Z; printf '日本' | wc -m | tr -d ' '"
    const output = await withEnv(local, () => run(command))
    assert.match(output, /^naïve 日本.txt\n.*No such file or directory\nUTC\n2\n$/)
  })

  test('git does not find the repository around the working directory', async (t) => {
    if (spawnSync('git', ['--version']).error) return t.skip('needs git')
    const init = (cwd: string) => execFileSync('git', ['init', '-q'], { cwd })
    init(workdir)
    workdir = join(workdir, 'inner')
    fs.mkdirSync(join(workdir, 'sub'), { recursive: true })
    const top = 'cd sub && git rev-parse --show-toplevel'
    assert.match(await run(top), /not a git repository(?:.|\n)*\(exit code 128\)$/)
    init(workdir)
    assert.equal(await run(top), `${workdir.replaceAll('\\', '/')}\n`)
  })
})
