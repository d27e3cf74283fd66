/** Runs at most `most` of the jobs it is given at once, in the order they come. */
export function atMost(most: number): <T>(job: () => Promise<T>) => Promise<T> {
  const waiting: (() => void)[] = []
  let running = 0
  return async (job) => {
    if (running === most) await new Promise<void>((start) => waiting.push(start))
    else running += 1
    try {
      return await job()
    } finally {
      // The place goes to the next in line, or is free.
      const next = waiting.shift()
      if (next) next()
      else running -= 1
    }
  }
}
