/** Loaded ahead of a measured program: tells the memory it has, when it is asked. */
import process from 'node:process'
import { setFlagsFromString } from 'node:v8'
import { runInNewContext } from 'node:vm'

setFlagsFromString('--expose-gc')
const collect = runInNewContext('gc')

process.on('message', () => {
  collect()
  const { heapUsed } = process.memoryUsage()
  process.send?.({ heap: heapUsed, peak: process.resourceUsage().maxRSS * 1024 })
})
process.channel?.unref()
