/** Waiting for a tool, but not for longer than its run is wanted. */

/** How long a stopped tool may take to hand over what it has. */
const GRACE_MS = 1000

/**
 * Waits for `work`, but after the signal's abort only GRACE_MS more: a tool may ignore
 * the signal, and its run must end all the same.
 *
 * @throws what `work` throws, or the signal's reason when the wait was given up
 */
export async function untilStopped<T>(
  work: T | Promise<T>,
  signal: AbortSignal,
): Promise<T> {
  let timer: NodeJS.Timeout | undefined
  let giveUp = () => {}
  const stopped = new Promise<never>((_, reject) => {
    giveUp = () => {
      timer = setTimeout(() => reject(signal.reason), GRACE_MS)
    }
  })
  if (signal.aborted) giveUp()
  else signal.addEventListener('abort', giveUp, { once: true })
  try {
    return await Promise.race([work, stopped])
  } finally {
    clearTimeout(timer)
    signal.removeEventListener('abort', giveUp)
  }
}
