/** Locks: one holder at a time, and a dead one's lock goes to exactly one. */
import assert from 'node:assert/strict'
import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import * as fs from 'node:fs'
import { tmpdir } from 'node:os'
import { basename, join } from 'node:path'
import { after, describe, test } from 'node:test'
import { lock } from '../steps/support/run/lock.ts'
import { compile, makeRoot } from './root.ts'

const folder = fs.realpathSync(fs.mkdtempSync(join(tmpdir(), 'lock-test-')))
const started = new Set<ChildProcess>()
after(() => {
  for (const child of started) child.kill('SIGKILL')
  fs.rmSync(folder, { recursive: true, force: true })
})

process.setMaxListeners(0) // each lock here waits for the end of this process
let names = 0
const fresh = () => join(folder, `${++names}`)
const locksOf = (path: string) =>
  fs.readdirSync(folder).filter((file) => file.startsWith(`${basename(path)}.lock`))
/** The pid of a process that has ended. */
const dead = async () => {
  const child = spawn(process.execPath, ['-e', ''])
  await once(child, 'exit')
  return Number(child.pid)
}

/**
 * A process that takes each path of its standard input, a line `TIME|PATH` each, when
 * that time has come, and answers with `ok` or with what the refusal says.
 */
const root = makeRoot()
fs.writeFileSync(
  join(root, 'steps/taker.ts'),
  `import { createInterface } from 'node:readline'
  import { lock } from './support/run/lock.ts'
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
  }`.replace(/^ {2}/gm, ''),
)
const TAKER = join(root, compile(root, 'steps/taker.ts'))

async function taker() {
  const child = spawn(process.execPath, [TAKER], { stdio: ['pipe', 'pipe', 'inherit'] })
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

test('a second process is refused until the first has ended or is killed', async () => {
  const [one, two, three] = await Promise.all([taker(), taker(), taker()])
  const path = fresh()
  assert.equal(await one.take(path), 'ok')
  const name = `${basename(folder)}/${basename(path)}`
  const said = `${name} is in use by process ${one.pid}: wait until it has ended. If it has, delete ${path}.lock.`
  assert.equal((await two.take(path)).replaceAll('\\', '/'), said.replaceAll('\\', '/'))
  await one.end()
  assert.deepEqual(locksOf(path), [])
  assert.equal(await two.take(path), 'ok')
  await two.end('SIGKILL')
  assert.deepEqual(locksOf(path), [`${basename(path)}.lock`])
  assert.equal(await three.take(path), 'ok')
  await three.end()
  assert.deepEqual(locksOf(path), [])
})

test('of six at once exactly one gets a dead lock, or a free one', async () => {
  const takers = await Promise.all(Array.from({ length: 6 }, taker))
  const pid = await dead()
  const winners = new Set<number>()
  for (let round = 0; round < 60; round++) {
    const path = fresh()
    if (round % 4 > 0) fs.writeFileSync(`${path}.lock`, String(pid))
    const time = Date.now() + 3
    const said = await Promise.all(takers.map(({ take }) => take(path, time)))
    const won = said.indexOf('ok')
    winners.add(won)
    assert.equal(said.filter((line) => line === 'ok').length, 1, said.join('\n'))
    for (const line of said) assert.match(line, /^ok$|is in use by (another )?process/)
    assert.deepEqual(locksOf(path), [`${basename(path)}.lock`], 'nothing else is left')
    assert.equal(fs.readFileSync(`${path}.lock`, 'utf8'), String(takers[won].pid))
  }
  assert(winners.size > 1, 'they really race')
  await Promise.all(takers.map(({ end }) => end()))
})

describe('what a lock file says', () => {
  const inUse = (pid: number | string) => new RegExp(`is in use by ${pid}: wait.*delete`)
  const put = (path: string, content: number | string) =>
    fs.writeFileSync(path, String(content))

  test('a living process holds it, and so does one that is about to write it', () => {
    for (const [content, who] of [
      [process.pid, `process ${process.pid}`],
      ['', 'another process'],
    ]) {
      const path = fresh()
      put(`${path}.lock`, content)
      assert.throws(() => lock(path), inUse(who))
    }
  })

  test('a taker that died on the way is named with its own file', async () => {
    const [path, pid] = [fresh(), await dead()]
    put(`${path}.lock`, pid)
    put(`${path}.lock.${pid}`, pid)
    assert.throws(() => lock(path), RegExp(`delete .*${basename(path)}.lock.${pid}\\.$`))
    fs.rmSync(`${path}.lock.${pid}`)
    lock(path)
    assert.throws(() => lock(path), inUse(`process ${process.pid}`))
  })
})
