/** Waiting for a tool, but not for longer than its run is wanted. */
import { once } from 'node:events'
import { setTimeout as sleep } from 'node:timers/promises'

const GRACE_MS = 1000 // for a stopped tool to hand over what it has

/**
 * Waits for `work`, but after the signal's abort only GRACE_MS more: a tool may ignore
 * the signal, and its run must end all the same.
 *
 * @throws what `work` throws, or the signal's reason when the wait was given up
 */
export async function untilStopped<T>(work: T | Promise<T>, signal: AbortSignal) {
  const ended = new AbortController()
  const giveUp = async (): Promise<never> => {
    if (!signal.aborted) await once(signal, 'abort', { signal: ended.signal })
    await sleep(GRACE_MS, undefined, { signal: ended.signal })
    throw signal.reason
  }
  try {
    return await Promise.race([work, giveUp()])
  } finally {
    ended.abort()
  }
}
