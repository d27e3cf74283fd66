/** The lanes of a run: which messages array is logged in which file, and how. */
import { createHash } from 'node:crypto'
import { join } from 'node:path'
import type { Message, MessageParam, Usage } from '@anthropic-ai/sdk/resources/messages'
import pino from 'pino'
import {
  type Lane,
  type LaneFile,
  type LaneHeader,
  lanesIn,
  mapStrings,
  renumberIds,
  sizeOf,
} from '../base/lane-file.ts'
import { textOf } from '../base/messages.ts'
import { Paths, unfold } from '../base/paths.ts'
import { redact } from '../base/secrets.ts'
import { print, showCalls } from '../terminal/screen.ts'
import { describeTools } from '../tools/bash.ts'
import type { Tool } from '../tools/tool.ts'
import { writtenCall } from '../tools/written.ts'
import type { Place } from './folders.ts'
import { recoverLane } from './resume.ts'

/** What a lane runs with, beside its messages. */
export type LaneSettings = {
  system: string
  tools: Tool[]
  workdir: string
  maxTurns?: number
  /** The model, where it is not the run's own. */
  model?: string
  /** The profile's name. */
  agent?: string
  /** The branch of a worktree of its own. */
  worktree?: string
  /** The lane's name, where it was taken before. */
  lane?: string
}

/** What all lanes of a run have in common. */
type Common = Pick<LaneHeader, 'step' | 'mode' | 'model' | 'note'>

/** A lane that was read back, and the directory in which it goes on. */
type Recovered = LaneFile & { workdir: string }

export class Lanes {
  /** Why not all of the run is logged. */
  broken?: Error
  readonly #common: Common
  readonly #folder: string
  readonly #paths: Paths
  readonly #names: Set<string>
  readonly #lanes = new Map<MessageParam[], Lane>()

  constructor(common: Common, { logs, workdir, broken }: Place) {
    this.broken = broken
    this.#common = common
    this.#folder = logs
    this.#paths = new Paths(workdir)
    this.#names = new Set(broken ? [] : lanesIn(logs))
  }

  /**
   * Starts the log of an array, once: `parent` is the first, then come `sub-1`, … What
   * the array holds already is logged, too.
   */
  open(messages: MessageParam[], settings: LaneSettings): string {
    const known = this.#lanes.get(messages)
    if (known) return known.name
    const name = settings.lane ?? (this.#lanes.size === 0 ? 'parent' : this.next('sub'))
    const lane = this.#start(this.header(name, settings), settings.workdir)
    this.#lanes.set(messages, lane)
    for (const message of messages) lane.message(message)
    return name
  }

  /** Takes the next name of a kind, so that names follow the order of the calls. */
  next(kind: string): string {
    const others = [...this.#names].filter((name) => name.startsWith(`${kind}-`))
    const numbers = others.map((name) => Number(name.slice(kind.length + 1)) || 0)
    const name = `${kind}-${1 + Math.max(0, ...numbers)}`
    this.#names.add(name)
    return name
  }

  /** Reads a lane of this run back; throws when there is none, or its file is broken. */
  read(lane: string, workdir = '<workdir>'): Recovered {
    return { ...recoverLane(this.#folder, lane, workdir, this.#lanes.size > 0), workdir }
  }

  /** Fills an empty array with a lane that was read back; its file goes on. */
  reopen(messages: MessageParam[], file: Recovered): void {
    messages.push(...file.messages)
    const lane = this.#start(file.header as LaneHeader, file.workdir, file.lines)
    for (const [array, { name, sums, earlier }] of this.#lanes) {
      if (name !== lane.name) continue
      lane.earlier.input = sums.input + earlier.input
      lane.earlier.output = sums.output + earlier.output
      this.#lanes.delete(array)
    }
    this.#lanes.set(messages, lane)
  }

  /** Line 1 of a lane with these settings, as its file holds it. */
  header(lane: string, settings: LaneSettings): LaneHeader {
    const { system, tools, workdir, maxTurns, model, agent, worktree } = settings
    const live = this.#common.mode === 'live'
    const place = createHash('sha256').update(workdir).digest('hex').slice(0, 12)
    return this.#clean(workdir, {
      step: this.#common.step,
      lane,
      mode: this.#common.mode,
      model: (live && model) || this.#common.model,
      ...(this.#common.note && { note: this.#common.note }),
      ...(agent && { agent }),
      ...(worktree && { worktree }),
      ...(live && { workdir: place }),
      system,
      tools: describeTools(tools),
      ...(Number.isFinite(maxTurns) && { max_turns: maxTurns }),
    })
  }

  #clean<T>(workdir: string, value: T): T {
    return mapStrings(value, (text) =>
      redact(this.#paths.fold(text.toWellFormed(), workdir)),
    )
  }

  /**
   * The writer of a lane. Every line is in its file before a call returns, so that a run
   * killed at any moment leaves all that it finished.
   */
  #start(header: LaneHeader, workdir: string, old?: LaneFile['lines']): Lane {
    const { lane: name, mode } = header
    const isLive = mode === 'live'
    let log: pino.Logger | undefined
    let reply: Message | undefined
    const attempt = (write: () => void) => {
      try {
        write()
      } catch (error) {
        log = undefined
        this.broken ??= error as Error
      }
    }
    attempt(() => {
      if (this.broken) return
      const dest = join(this.#folder, `${name}.log`)
      const level = (label: string) => ({ level: label })
      log = pino(
        { base: null, timestamp: false, formatters: { level } },
        pino.destination({ dest, sync: true, mkdir: true }),
      )
      if (!old) log.info(header)
    })
    const clean = <T>(value: T) => this.#clean(workdir, value)
    const renumber = renumberIds()
    const asLogged = ({ role, content }: MessageParam) => {
      return { role, content: clean(renumber(content)) }
    }
    const sums = { messages: 0, turns: 0, input: 0, output: 0 }
    for (const { role, content } of old ?? []) {
      if (role) sums.messages += 1
      renumber(content)
    }
    return {
      name,
      sums,
      earlier: { input: 0, output: 0 },
      clean,
      restore: (value) => mapStrings(value, (text) => unfold(text, workdir)),
      answered(next) {
        reply = next
      },
      message(message) {
        const { stop_reason, usage } = (message.role === 'assistant' && reply) || {}
        const { input, output } = tokensIn(usage)
        sums.messages += 1
        sums.turns += stop_reason ? 1 : 0
        sums.input += input
        sums.output += output
        const stop = stop_reason && { stop_reason }
        const line = { ...asLogged(message), ...stop, ...(isLive && usage && { usage }) }
        attempt(() => log?.info(line))
        const tool = stop_reason && writtenCall(textOf(message), header.tools)
        if (!tool) return
        this.event('warn', 'call_as_text', { tool })
        print(`${name} wrote a call of ${tool} as text: it was not run.`, 'yellow')
      },
      event(level, event, fields) {
        attempt(() => log?.[level]({ event, ...clean(fields) }))
      },
      size(messages) {
        const { input, output } = tokensIn(reply?.usage)
        const parts = [header.system, header.tools, ...messages.map(asLogged)]
        return { tokens: input + output, bytes: sizeOf(parts) }
      },
    }
  }

  /** Logs a message, just pushed, in the lane of its array. */
  log(messages: MessageParam[], message: MessageParam): void {
    const lane = this.#lanes.get(messages)
    if (!lane) throw new Error('This array has no log: call session.openLane first.')
    lane.message(message)
    showCalls(lane.name, message)
  }

  /** Writes a line that is no message: as a warning, if it tells of a bad outcome. */
  event(messages: MessageParam[], event: string, fields: object): void {
    const isBad = 'status' in fields && fields.status !== 'completed'
    this.#lanes.get(messages)?.event(isBad ? 'warn' : 'info', event, fields)
  }

  /** The lane of a request, be its messages in a copy of the lane's array. */
  laneOf = ({ messages }: { messages: MessageParam[] }): Lane | undefined => {
    const last = messages.at(-1)
    const own = this.#lanes.get(messages)
    return own ?? [...this.#lanes].find(([array]) => array.at(-1) === last)?.[1]
  }

  /**
   * How large a history is: in tokens, as an API counted its last request and reply (0
   * before the first), or in bytes, what its next request is made of, as `view` counts.
   */
  size(messages: MessageParam[], unit: 'tokens' | 'bytes'): number {
    return this.#lanes.get(messages)?.size(messages)[unit] ?? 0
  }

  /** Replies since an array's lane was opened, and their tokens as an API gave them. */
  usage(messages: MessageParam[]): { turns: number; input: number; output: number } {
    const { turns = 0, input = 0, output = 0 } = this.#lanes.get(messages)?.sums ?? {}
    return { turns, input, output }
  }

  all(): Lane[] {
    return [...this.#lanes.values()]
  }
}

/** What a request took, cached tokens too, and its reply. */
function tokensIn(usage?: Partial<Usage>): { input: number; output: number } {
  const { input_tokens: fresh = 0, output_tokens: output = 0 } = usage ?? {}
  const { cache_creation_input_tokens: kept, cache_read_input_tokens: read } = usage ?? {}
  return { input: fresh + (kept ?? 0) + (read ?? 0), output }
}
