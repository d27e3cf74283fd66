/** Locks: one holder at a time, and a dead one's lock goes to exactly one. */
import assert from 'node:assert/strict'
import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import * as fs from 'node:fs'
import { tmpdir } from 'node:os'
import { basename, join } from 'node:path'
import { after, describe, test } from 'node:test'
import { pathToFileURL } from 'node:url'
import { lock } from '../steps/support/run/lock.ts'

const linux = { skip: process.platform !== 'linux' && 'needs /proc' }
const folder = fs.realpathSync(fs.mkdtempSync(join(tmpdir(), 'lock-test-')))
const started = new Set<ChildProcess>()
after(() => {
  for (const child of started) child.kill('SIGKILL')
  fs.rmSync(folder, { recursive: true, force: true })
})

process.setMaxListeners(0) // each lock here waits for the end of this process
let names = 0
const fresh = () => join(folder, `${++names}`)
const locksOf = (path: string) => {
  const name = basename(path)
  return fs.readdirSync(folder).filter((file) => file.startsWith(`${name}.lock.`))
}

/**
 * A process that takes each path of its standard input, a line `TIME PATH` each, when
 * that time has come, and answers with `ok` or with what the refusal says.
 */
const TAKER = join(folder, 'taker.mjs')
fs.writeFileSync(
  TAKER,
  `import { createInterface } from 'node:readline'
  import { lock } from '${pathToFileURL(join(import.meta.dirname, '../steps/support/run/lock.ts'))}'
  process.setMaxListeners(0)
  console.log('ready')
  for await (const line of createInterface({ input: process.stdin })) {
    const [time, path] = line.split('|')
    while (Date.now() < Number(time));
    try {
      lock(path)
      console.log('ok')
    } catch (error) {
      console.log(error.message)
    }
  }`,
)

async function taker() {
  const child = spawn(process.execPath, ['--import', 'tsx', TAKER], {
    cwd: join(import.meta.dirname, '..'),
    stdio: ['pipe', 'pipe', 'inherit'],
  })
  started.add(child)
  child.once('exit', () => started.delete(child))
  let lines: string[] = []
  child.stdout.setEncoding('utf8').on('data', (piece) => {
    lines = (lines.join('\n') + piece).split('\n')
    child.emit('lines')
  })
  const answer = async () => {
    while (lines.length < 2) await once(child, 'lines')
    return lines.shift() ?? ''
  }
  assert.equal(await answer(), 'ready')
  const take = (path: string, time = 0) => {
    child.stdin.write(`${time}|${path}\n`)
    return answer()
  }
  const end = async (signal?: NodeJS.Signals) => {
    if (signal) child.kill(signal)
    else child.stdin.end()
    await once(child, 'exit')
  }
  return { pid: child.pid ?? 0, take, end }
}

describe('one holder', { concurrency: 4 }, () => {
  test('a second process is refused by name until the first has ended', async () => {
    const [one, two] = await Promise.all([taker(), taker()])
    const path = fresh()
    assert.equal(await one.take(path), 'ok')
    const said = await two.take(path)
    assert.match(
      said,
      new RegExp(`${basename(path)} is in use by process ${one.pid}: wait until`),
    )
    assert.deepEqual(locksOf(path), [`${basename(path)}.lock.1`])
    await one.end()
    assert.deepEqual(locksOf(path), [])
    assert.equal(await two.take(path), 'ok')
    await two.end()
    assert.deepEqual(locksOf(path), [])
  })

  test('what a killed process held is free, and its file goes', async () => {
    const [one, two] = await Promise.all([taker(), taker()])
    const path = fresh()
    assert.equal(await one.take(path), 'ok')
    await one.end('SIGKILL')
    assert.equal(locksOf(path).length, 1)
    assert.equal(await two.take(path), 'ok')
    assert.deepEqual(locksOf(path), [`${basename(path)}.lock.2`])
    await two.end()
    assert.deepEqual(locksOf(path), [])
  })

  test('of six at once exactly one gets a dead lock, or a free one', async () => {
    const takers = await Promise.all(Array.from({ length: 6 }, taker))
    const winners = new Set<number>()
    for (let round = 0; round < 150; round++) {
      const path = fresh()
      const dead = { pid: process.pid, start: 'long ago' }
      if (round % 4 > 0) fs.writeFileSync(`${path}.lock.7`, JSON.stringify(dead))
      const time = Date.now() + 3
      const said = await Promise.all(takers.map(({ take }) => take(path, time)))
      const won = said.indexOf('ok')
      winners.add(won)
      assert.equal(said.filter((line) => line === 'ok').length, 1, said.join('\n'))
      for (const line of said) assert.match(line, /^ok$|is in use by (another )?process/)
      const file = `${basename(path)}.lock.${round % 4 > 0 ? 8 : 1}`
      assert.deepEqual(locksOf(path), [file], 'the dead one is gone')
      assert.match(
        fs.readFileSync(join(folder, file), 'utf8'),
        RegExp(`${takers[won].pid}`),
      )
    }
    assert(winners.size > 1, 'they really race')
    await Promise.all(takers.map(({ end }) => end()))
  })
})

describe('what a lock file says', () => {
  const put = (content: string, age = 0) => {
    const path = fresh()
    fs.writeFileSync(`${path}.lock.1`, content)
    const then = Date.now() / 1000 - age
    fs.utimesSync(`${path}.lock.1`, then, then)
    return path
  }

  test('a live process with another start time is another process', () => {
    const path = put(JSON.stringify({ pid: process.pid, start: 'long ago' }))
    lock(path)
    assert.deepEqual(locksOf(path), [`${names}.lock.2`])
    assert.throws(
      () => lock(path),
      RegExp(`${names} is in use by process ${process.pid}`),
    )
  })

  test('a process that does not exist holds nothing, whatever is said of it', () => {
    for (const start of ['', 'alive', 'long ago']) {
      lock(put(JSON.stringify({ pid: 2 ** 22 + 1, start })))
    }
    for (const content of ['{}', 'null', '7', '"x"', '{"pid":0,"start":""}']) {
      lock(put(content, 60))
    }
  })

  test('an empty one is held while it is fresh: its owner is about to write it', () => {
    for (const content of ['', '{"pid":12']) {
      const path = put(content)
      assert.throws(() => lock(path), /is in use by another process: wait/)
      assert.deepEqual(locksOf(path), [`${names}.lock.1`])
      lock(put(content, 60))
      assert.deepEqual(locksOf(`${folder}/${names}`), [`${names}.lock.2`])
    }
  })

  test('a killed process that nobody has waited for holds nothing', linux, async () => {
    // The shell becomes a program that never asks how its first child ended.
    const shell = spawn('sh', ['-c', 'sleep 30 & echo $!; exec sleep 30'])
    started.add(shell)
    const pid = Number(await once(shell.stdout, 'data'))
    const stat = fs.readFileSync(`/proc/${pid}/stat`, 'utf8')
    const start = stat.slice(stat.lastIndexOf(') ') + 2).split(' ')[19]
    const boot = fs.readFileSync('/proc/sys/kernel/random/boot_id', 'utf8').trim()
    const path = put(JSON.stringify({ pid, start: `${boot} ${start}` }))
    assert.throws(() => lock(path), RegExp(`in use by process ${pid}`))
    process.kill(pid, 'SIGKILL')
    while (!/\) Z /.test(fs.readFileSync(`/proc/${pid}/stat`, 'utf8')));
    lock(path)
    shell.kill('SIGKILL')
  })

  test('a folder that does not exist yet is made', () => {
    const path = join(fresh(), 'deep', 'parent.log')
    lock(path)
    assert.throws(() => lock(path), /deep.parent\.log is in use/)
  })
})
