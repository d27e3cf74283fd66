/** The body of bash: output and ending, limits, what is left behind, the environment. */
import assert from 'node:assert/strict'
import { execFileSync, spawnSync } from 'node:child_process'
import * as fs from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after, afterEach, beforeEach, describe, test } from 'node:test'
import { setTimeout as sleep } from 'node:timers/promises'
import { bash, decode, SHELL, stopAll } from '../steps/support/tools/bash.ts'

const posix = { skip: process.platform === 'win32' && 'needs a POSIX shell' }
const linux = { skip: process.platform !== 'linux' && 'needs /proc' }
const base = fs.realpathSync(fs.mkdtempSync(join(tmpdir(), 'shell-test-')))
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

const run = (command: string, timeoutMs?: number) =>
  bash({ command }, { workdir, timeoutMs })
/** A command that runs `code` in Node; it may hold no `"`, `$` or backslash. */
const node = (code: string) => `node -e "${code}"`
/** Makes the file `beat` grow for as long as it lives. */
const BEAT = node("setInterval(() => fs.appendFileSync('beat', '.'), 10)")
const beats = () =>
  fs.statSync(join(workdir, 'beat'), { throwIfNoEntry: false })?.size ?? 0
async function until(condition: () => boolean): Promise<void> {
  for (const start = Date.now(); !condition(); await sleep(10)) {
    if (Date.now() - start > 15_000) throw new Error(`Waited in vain for ${condition}`)
  }
}
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

  test('a signal is named', posix, async () => {
    assert.equal(await run('echo a; kill -TERM $$'), 'a\n(killed by SIGTERM)')
  })

  test('what the shell itself has to say', posix, async () => {
    const missing = await run('echo a\nno-such-command')
    assert.match(
      missing,
      /^a\n.*(line )?2: no-such-command: .*not found\n\(exit code 127\)$/,
    )
    assert.match(
      await run('no-such-command'),
      SHELL === 'sh' ? /1: no-such/ : /line 1: no-such/,
    )
    assert.match(await run('echo ('), /(line )?1: syntax error(?:.|\n)*\(exit code 2\)$/i)
    assert.match(await run('-x'), /-x: .*not found/)
  })

  test('the command is given as it is', posix, async () => {
    const text = `'"' $HOME \\ \`x\` !! %PATH% *`
    fs.writeFileSync(join(workdir, 'text'), text)
    assert.equal(await run(`cat <<'END'\n${text}\nEND\ncat text`), `${text}\n${text}`)
    assert.equal(await run('echo $# "$1"'), '0 \n')
    assert.equal(await run('# nothing'), '')
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

  test('several at once do not mix', async () => {
    const outputs = ['a', 'b', 'c', 'd'].map((x) => run(node(`console.log('${x}')`)))
    assert.deepEqual(await Promise.all(outputs), ['a\n', 'b\n', 'c\n', 'd\n'])
  })

  test('what cannot run is an error', async () => {
    await assert.rejects(run('echo a\0b'), /command has a NUL/)
    fs.rmSync(workdir, { recursive: true })
    await assert.rejects(run('echo a'), {
      message: `The working directory ${workdir} is gone`,
    })
    fs.writeFileSync(workdir, '')
    await assert.rejects(run('echo a'), /is gone/)
  })

  test('a command that is too long is an error', linux, async () => {
    const message = `${SHELL} cannot start: the command is too long, write it to a file`
    await assert.rejects(run(`echo ${'x'.repeat(200_000)}`), { message })
  })

  test('no timer is left when the result has come', async () => {
    const info = () => process.getActiveResourcesInfo()
    const timers = () => info().filter((resource) => resource === 'Timeout').length
    await sleep(200) // for those of earlier commands, if there are any
    const before = timers()
    await run('echo a')
    assert.ok(timers() <= before)
  })

  test('SHELL names the shell that runs', posix, async () => {
    assert.equal(await run('echo $0'), `${SHELL}\n`)
  })
})

describe('much output, strange output', () => {
  test('up to 30 000 bytes come whole', async () => {
    const code = "process.stdout.write('a'.repeat(15001) + 'b'.repeat(14999))"
    assert.equal(await run(node(code)), 'a'.repeat(15_001) + 'b'.repeat(14_999))
  })

  test('of more, the two ends, cut between characters', async () => {
    for (const char of ['a', 'é', '語', '😀']) {
      for (const shift of ['', '-', '--', '---']) {
        const whole = `${shift}${char.repeat(40_000)}${shift}`
        fs.writeFileSync(join(workdir, 'text'), whole)
        const text = await run(process.platform === 'win32' ? 'type text' : 'cat text')
        const [, head, left, tail] = text.split(/^(.*)\n\[left out: (\d+) bytes\]\n(.*)$/)
        assert.ok(whole.startsWith(head) && whole.endsWith(tail), `${char} ${shift}`)
        const sizes = [head, tail].map((end) => Buffer.byteLength(end))
        for (const size of sizes) assert.ok(size > 14_996 && size <= 15_000, `${size}`)
        assert.equal(sizes[0] + Number(left) + sizes[1], Buffer.byteLength(whole))
      }
    }
  })

  test('a flood does not fill the memory', posix, async () => {
    const before = process.memoryUsage().rss
    const text = await run('yes | head -c 200000000; echo end; exit 1')
    assert.ok(process.memoryUsage().rss - before < 150_000_000)
    assert.match(
      text,
      /^(y\n)+\n\[left out: 199970004 bytes\]\n(y\n)+end\n\(exit code 1\)$/,
    )
  })

  test('bytes that are no UTF-8', async () => {
    const code = 'process.stdout.write(Buffer.from([97, 255, 98]))'
    assert.equal(await run(node(code)), 'a\uFFFDb')
  })

  test("a Windows console's own code page", () => {
    const gbk = Buffer.from([0xc4, 0xe3, 0xba, 0xc3])
    assert.equal(
      decode(gbk, () => 936),
      '你好',
    )
    assert.equal(
      decode(Buffer.from('你好'), () => 936),
      '你好',
    )
    assert.equal(
      decode(Buffer.from([0x82, 0xa0]), () => 932),
      'あ',
    )
    assert.equal(
      decode(Buffer.from([0xe9]), () => 1252),
      'é',
    )
    assert.equal(
      decode(Buffer.from([0xcf]), () => 1251),
      'П',
    )
    assert.equal(
      decode(Buffer.from([0xe9]), () => 65001),
      '\uFFFD',
    )
    assert.equal(
      decode(Buffer.from([0xe9]), () => Number.NaN),
      'é',
    )
  })
})

describe('the time limit', () => {
  // Long enough for a busy machine to have started what is to be killed.
  const LIMIT = 2500
  const stopped = /^\(stopped after \d\.\d s: .* belongs in the background\)$/m

  test('keeps the output so far and kills the tree', async () => {
    const code = `console.log('so far'); child_process.execSync(process.argv[1])`
    const beat = `const fs = require('fs'); ${BEAT.slice(9, -1)}`
    fs.writeFileSync(join(workdir, 'beat.js'), beat)
    const output = await run(`${node(code)} "node beat.js"`, LIMIT)
    assert.match(output, /^so far\n\(stopped after 2\.5 s: .*\)$/)
    await assertDead()
  })

  test(
    'and what has left the process group, or dropped the environment',
    linux,
    async () => {
      const unmarked = `env -i "$(command -v node)" ${BEAT.slice(5)}`
      assert.match(await run(`setsid ${BEAT} & ${unmarked} & sleep 30`, LIMIT), stopped)
      await assertDead()
    },
  )

  test('a flood ends, too', posix, async () => {
    assert.match(await run('yes', 200), stopped)
  })

  test('spares other commands, and one that has ended', posix, async () => {
    const other = run('sleep 0.4; echo done')
    assert.match(await run('sleep 30', 200), stopped)
    assert.equal(await other, 'done\n')
    assert.equal(await run('sleep 9 & echo in time', 5000), 'in time\n')
  })
})

describe('the background', { skip: posix.skip }, () => {
  afterEach(stopAll)

  test('does not hold the command, lives on, and dies at the end', async () => {
    const start = Date.now()
    assert.equal(await run(`${BEAT} & echo hi`), 'hi\n')
    assert.ok(Date.now() - start < 10_000)
    assert.equal(await run('echo next'), 'next\n')
    const before = beats()
    await until(() => beats() > before)
    stopAll()
    await assertDead()
  })

  test('also with its output elsewhere, or without our environment', async () => {
    const outputs = `${BEAT} > log 2>&1 & env -i "$(command -v node)" ${BEAT.slice(5)} &`
    assert.equal(await run(`${outputs} echo hi`), 'hi\n')
    await until(() => beats() > 50)
    stopAll()
    await assertDead()
  })

  test('also outside the group', linux, async () => {
    assert.equal(await run(`setsid ${BEAT} > log 2>&1 & echo hi`), 'hi\n')
    await until(() => beats() > 0)
    stopAll()
    await assertDead()
  })

  test('the id of a group that has ended is not used again', async (t) => {
    await run('echo hi')
    const kill = t.mock.method(process, 'kill')
    stopAll()
    assert.deepEqual(
      kill.mock.calls.filter((call) => Number(call.arguments[0]) < 0),
      [],
    )
  })

  test('may go on printing, more than a pipe holds', async () => {
    const print = "for (let i = 0; i < 200; i++) fs.writeSync(1, '.'.repeat(9999))"
    const late = `sleep 0.3; ${node(`${print}; fs.writeFileSync('alive', '')`)}`
    assert.equal(await run(`(${late}) & echo hi`), 'hi\n')
    await until(() => fs.existsSync(join(workdir, 'alive')))
  })

  test('the program ends after its last command, and takes it along', async () => {
    const source = new URL('../steps/support/tools/bash.ts', import.meta.url)
    const script = `import { bash } from '${source}'
      const [, workdir, command] = process.argv
      console.log(await bash({ command }, { workdir }))`
    const command = `${BEAT} & while [ ! -e beat ]; do sleep 0.01; done; echo hi`
    const args = [
      '--import',
      'tsx',
      '--input-type=module',
      '-e',
      script,
      workdir,
      command,
    ]
    const cwd = join(import.meta.dirname, '..')
    const options = { encoding: 'utf8', timeout: 25_000, cwd } as const
    const { stdout, stderr, status } = spawnSync(process.execPath, args, options)
    assert.deepEqual([stdout, stderr, status], ['hi\n\n', '', 0])
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
  /** What a command sees of these variables when they are set in this process. */
  async function seen(variables: Record<string, string>) {
    const names = Object.keys(variables).join()
    const values = `'${names}'.split(',').map(name => process.env[name])`
    const code = `console.log(JSON.stringify(${values}))`
    return JSON.parse(await withEnv(variables, () => run(node(code))))
  }

  test('no secrets', async () => {
    const names = [
      'ANTHROPIC_API_KEY ANTHROPIC_AUTH_TOKEN ANTHROPIC_BASE_URL MY_APIKEY',
      'AWS_ACCESS_KEY_ID AWS_SECRET_ACCESS_KEY github_token GH_PAT DB_PASSWORD',
      'PGPASSWORD MYSQL_PWD SSHPASS GOOGLE_APPLICATION_CREDENTIALS BASIC_AUTH',
      'SESSION_COOKIE OpenAI_Key',
    ].flatMap((line) => line.split(' '))
    const values = await seen(Object.fromEntries(names.map((name) => [name, 'hidden'])))
    assert.deepEqual(
      values,
      names.map(() => null),
    )
  })

  test('nothing of how this program was started, or that alters output', async () => {
    const names = [
      'NODE_OPTIONS NODE_PATH NODE_ENV npm_config_x npm_lifecycle_event INIT_CWD',
      'NO_COLOR FORCE_COLOR CLICOLOR_FORCE GIT_DIR GIT_AUTHOR_NAME COLUMNS LINES',
      'LANG LANGUAGE LC_TIME BASH_ENV ENV CDPATH',
    ].flatMap((line) => line.split(' '))
    const values = await seen(Object.fromEntries(names.map((name) => [name, ''])))
    assert.deepEqual(
      values,
      names.map(() => null),
    )
  })

  test('the rest stays', async () => {
    const kept = { PATH: `${process.env.PATH}`, HOME: '/h', PWD: workdir, KEYBOARD: 'us' }
    const sock = {
      SSH_AUTH_SOCK: '/s',
      TMPDIR: '/t',
      AUTHOR: 'me',
      NODE_EXTRA_CA_CERTS: '',
    }
    assert.deepEqual(
      await seen({ ...kept, ...sock }),
      Object.values({ ...kept, ...sock }),
    )
  })

  test('an outer run finds what a run inside it started', async () => {
    const [value] = await seen({ AGENT_RUN: 'outer.1.' })
    assert.match(value, /^outer\.1\. [\da-f-]{36}\.\d+\.$/)
  })

  test('time zone and language are the same everywhere, UTF-8 works', posix, async () => {
    await withEnv(
      { LC_ALL: 'de_DE.UTF-8', LANGUAGE: 'de', TZ: 'Asia/Tokyo' },
      async () => {
        fs.writeFileSync(join(workdir, 'naïve 日本.txt'), '')
        assert.equal(await run('ls'), 'naïve 日本.txt\n')
        assert.match(
          await run('cat nothing; date +%Z'),
          /No such file or directory\nUTC\n/,
        )
        assert.equal(await run("printf '日本' | wc -m | tr -d ' '"), '2\n')
      },
    )
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
