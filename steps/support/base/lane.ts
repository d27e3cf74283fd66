/** The writer of a lane's file. */
import type { Message, MessageParam } from '@anthropic-ai/sdk/resources/messages'
import pino from 'pino'
import { type LaneHeader, type LaneLine, renumberIds, tokensIn } from './lane-file.ts'
import { type Paths, unfold } from './paths.ts'

/**
 * One lane of a run. Every line is in its file before a call returns, so that a run
 * killed at any moment leaves all that it finished.
 */
export class Lane {
  readonly name: string
  readonly header: LaneHeader
  /** A value as the file holds it: well formed, no secrets, no paths of this machine. */
  readonly clean: <T>(value: T) => T
  /** A value from the file as it was said, but for secrets. */
  readonly restore: <T>(value: T) => T
  /** Since it was opened: replies, and their tokens as an API counted them. */
  readonly usage = { turns: 0, input: 0, output: 0 }
  readonly ids = new Map<string, string>() // of calls, and what the file calls them
  reply?: Message // the last one: its message's line says why it stopped, what it cost
  broken?: Error // why its file is not whole
  readonly #renumber = renumberIds(this.ids)
  #log?: pino.Logger

  /** Begins the file `dest`, or goes on with one that holds `lines` behind its header. */
  constructor(
    dest: string,
    header: LaneHeader,
    workdir: string,
    paths: Paths,
    lines?: LaneLine[],
  ) {
    this.name = header.lane
    this.header = header
    this.clean = (value) => paths.clean(workdir, value)
    this.restore = (value) => unfold(value, workdir)
    for (const { content } of lines ?? []) this.#renumber(content)
    this.#write(() => {
      const level = (label: string) => ({ level: label })
      const destination = pino.destination({ dest, sync: true, mkdir: true })
      const format = { base: null, timestamp: false, formatters: { level } }
      this.#log = pino(format, destination)
      if (!lines) this.#log.info(header)
    })
  }

  #write(write: () => void): void {
    try {
      write()
    } catch (error) {
      this.#log = undefined
      this.broken ??= error as Error
    }
  }

  asLogged = ({ role, content }: MessageParam) => {
    return { role, content: this.clean(this.#renumber(content)) }
  }

  /** Writes a message; true if it is the model's reply. */
  message(message: MessageParam): boolean {
    const { stop_reason, usage } = (message.role === 'assistant' && this.reply) || {}
    const { input, output } = tokensIn([usage])
    this.usage.turns += stop_reason ? 1 : 0
    this.usage.input += input
    this.usage.output += output
    const isLive = this.header.mode === 'live'
    const cost = isLive && usage && { usage }
    const stop = stop_reason && { stop_reason }
    const line = { ...this.asLogged(message), ...stop, ...cost }
    this.#write(() => this.#log?.info(line))
    return Boolean(stop_reason)
  }

  /** Writes a line that is no message, such as a request that got no reply. */
  event(level: 'info' | 'warn' | 'error', event: string, fields?: object): void {
    this.#write(() => this.#log?.[level]({ event, ...this.clean(fields) }))
  }
}
