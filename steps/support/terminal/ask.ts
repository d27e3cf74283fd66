/** Asking the reader while a run goes on. */
import { stdin } from 'node:process'
import { question } from './prompts.ts'
import { visible, waitFor } from './screen.ts'

let last = Promise.resolve(false)

/**
 * Asks yes or no, one question at a time, until the signal's abort; only a clear yes is
 * one. No, where nobody can be asked: offline, or with no terminal.
 */
export function ask(run: { live: boolean }, text: string, signal?: AbortSignal) {
  if (!run.live || !stdin.isTTY) return Promise.resolve(false)
  last = last.then(async () => {
    if (signal?.aborted) return false
    waitFor('')
    const typed = await question(`${visible(text)} Allow it? [y/N] `, '', signal)
    return /^y(es)?$/i.test(typed ?? '')
  })
  return last
}
