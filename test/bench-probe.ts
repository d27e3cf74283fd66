/** Loaded ahead of a measured program: says how much memory it has, when asked. */
import process from 'node:process'
import { setImmediate } from 'node:timers/promises'
import { setFlagsFromString } from 'node:v8'
import { runInNewContext } from 'node:vm'

setFlagsFromString('--expose-gc')
setFlagsFromString('--no-flush-bytecode') // code that comes and goes would hide the rest
const collect = runInNewContext('gc')

process.on('message', async () => {
  for (let i = 0; i < 3; i++) {
    collect()
    await setImmediate() // what was finalized may free more
  }
  const { heapUsed } = process.memoryUsage()
  process.send?.({ heap: heapUsed, peak: process.resourceUsage().maxRSS * 1024 })
})
process.channel?.unref()
