/** Headless Chromium, driven over its DevTools protocol, with the page in it. */
import assert from 'node:assert/strict'
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { existsSync } from 'node:fs'
import { delimiter, join } from 'node:path'
import process from 'node:process'
import type { Readable, Writable } from 'node:stream'
import { pathToFileURL } from 'node:url'
import { PAGE } from '../docs/page/join.ts'

// biome-ignore lint/suspicious/noExplicitAny: the protocol's and the page's own shapes
export type Json = Record<string, any>
export type Page = Awaited<ReturnType<typeof openPage>>

const FLAGS =
  'headless no-sandbox disable-gpu disable-quic no-first-run disable-sync lang=en ' +
  'disable-background-networking disable-component-update disable-dev-shm-usage ' +
  'window-size=1280,900 remote-debugging-pipe in-process-gpu no-zygote disable-extensions'

/** The one that CHROMIUM_PATH names, or else one that is there under a usual name. */
export function findBrowser(): string | undefined {
  const usual = 'chromium chromium-browser google-chrome google-chrome-stable chrome'
  const folders = ['/usr/bin', ...(process.env.PATH ?? '').split(delimiter)]
  const places = usual.split(' ').flatMap((name) => folders.map((it) => join(it, name)))
  const { CHROMIUM_PATH } = process.env
  return (CHROMIUM_PATH ? [CHROMIUM_PATH] : places).find((path) => existsSync(path))
}

/** Starts a browser with one page; whatever is wrong on its console is kept. */
export async function openPage(path: string, profile: string) {
  const flags = FLAGS.split(' ').map((flag) => `--${flag}`)
  const browser = spawn(path, [...flags, `--user-data-dir=${profile}`, 'about:blank'], {
    stdio: ['ignore', 'ignore', 'ignore', 'pipe', 'pipe'],
    detached: true, // a group of its own, which ends when this pipe does
  })
  const ended = once(browser, 'close')
  const [input, output] = browser.stdio.slice(3) as unknown as [Writable, Readable]
  const waiting = new Map<number, (message: Json) => void>()
  const events: Json[] = []
  let onLoad = () => {}
  let rest = ''
  output.setEncoding('utf8').on('data', (chunk: string) => {
    const messages = (rest + chunk).split('\0')
    rest = messages.pop() ?? ''
    for (const message of messages.map((it) => JSON.parse(it) as Json)) {
      waiting.get(message.id)?.(message)
      if (message.method) events.push(message)
      if (message.method === 'Page.loadEventFired') onLoad()
    }
  })
  let id = 0
  const ask = async (method: string, params: Json, sessionId?: string) => {
    id += 1
    input.write(`${JSON.stringify({ id, method, params, sessionId })}\0`)
    const answer = new Promise<Json>((done) => waiting.set(id, done))
    const gone = ended.then(() => ({ error: { message: 'the browser ended' } }) as Json)
    const { result, error } = await Promise.race([answer, gone])
    if (error) throw new Error(`${method}: ${error.message}`)
    return result
  }
  const { targetInfos } = await ask('Target.getTargets', {})
  const { targetId } = targetInfos.find(({ type }: Json) => type === 'page')
  const { sessionId } = await ask('Target.attachToTarget', { targetId, flatten: true })
  const send = (method: string, params: Json = {}) => ask(method, params, sessionId)
  for (const part of ['Page', 'Runtime', 'Log', 'Network']) await send(`${part}.enable`)

  const evaluate = async <T = unknown>(expression: string): Promise<T> => {
    const given = { expression, awaitPromise: true, returnByValue: true }
    const { result, exceptionDetails } = await send('Runtime.evaluate', given)
    assert(!exceptionDetails, exceptionDetails?.exception?.description)
    return result.value
  }
  const on = (selector: string, property: string) =>
    evaluate(`document.querySelector(${JSON.stringify(selector)})${property}`)
  /** Waits in the page, frame by frame, until an expression is true. */
  const until = (expression: string) =>
    evaluate(`new Promise((done, fail) => {
      const end = performance.now() + 20_000
      const look = () => {
        if (${expression}) done()
        else if (performance.now() < end) setTimeout(look, 20)
        else fail(new Error('never true: ' + ${JSON.stringify(expression)}))
      }
      look()
    })`)
  /** Opens the page from the disk; in English, unless the address says otherwise. */
  const open = async (address: string) => {
    const query = address.startsWith('?') ? address : `?lang=en${address}`
    // By way of an empty page, so that it is loaded even where only the hash differs.
    for (const url of ['about:blank', pathToFileURL(PAGE).href + query]) {
      const isLoaded = new Promise<void>((done) => {
        onLoad = done
      })
      await send('Page.navigate', { url })
      await isLoaded
    }
  }
  const key = async (name: string) => {
    const text = { Enter: '\r' }[name] ?? (name.length === 1 ? name : undefined)
    await send('Input.dispatchKeyEvent', { type: 'keyDown', key: name, text })
    await send('Input.dispatchKeyEvent', { type: 'keyUp', key: name })
  }
  /** Drops files or folders, and waits until the page says what it has read. */
  const drop = async (files: string[]) => {
    await on('#notices', '.replaceChildren()')
    const data = { items: [], files, dragOperationsMask: 1 }
    for (const type of ['dragEnter', 'dragOver', 'drop']) {
      await send('Input.dispatchDragEvent', { type, x: 300, y: 300, data })
    }
    await until(`document.getElementById('notices').childElementCount > 0`)
  }
  const resize = async (width: number, height: number) => {
    const size = { width, height, deviceScaleFactor: 1, mobile: width < 500 }
    await send('Emulation.setDeviceMetricsOverride', size)
    await until(`innerWidth === ${width} && innerHeight === ${height}`)
  }
  const prefer = (name: string, value: string) =>
    send('Emulation.setEmulatedMedia', { features: [{ name, value }] })
  const boxOf = (selector: string) =>
    on(selector, '.getBoundingClientRect().toJSON()') as Promise<Json>
  const close = async () => {
    await ask('Browser.close', {}).catch(() => browser.kill('SIGKILL'))
    await ended
    // What it has started and not ended yet goes with its group; Windows knows none.
    try {
      if (browser.pid && process.platform !== 'win32')
        process.kill(-browser.pid, 'SIGKILL')
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== 'ESRCH') throw error // it is gone
    }
  }
  const text = (selector: string) => on(selector, '.textContent') as Promise<string>
  const count = (selector: string) =>
    evaluate<number>(`document.querySelectorAll(${JSON.stringify(selector)}).length`)
  const click = (selector: string) => on(selector, '.click()')
  const page = { send, evaluate, until, open, key, drop, resize, prefer, boxOf, close }
  return { ...page, text, count, click, events }
}
