/** The lanes of a run: which messages array is logged in which file. */
import { createHash } from 'node:crypto'
import { existsSync, readdirSync } from 'node:fs'
import { join } from 'node:path'
import type { Message, MessageParam } from '@anthropic-ai/sdk/resources/messages'
import type { LaneFile } from '../base/lane-file.ts'
import { type Lane, type LaneHeader, mapStrings, sizeOf } from '../base/lane-file.ts'
import { redact } from '../base/secrets.ts'
import { showCalls } from '../terminal/screen.ts'
import { describeTools } from '../tools/bash.ts'
import type { Tool } from '../tools/tool.ts'
import { foldPath, openLane } from './log.ts'
import { readBack } from './resume.ts'

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

const tokensIn = (usage: Message['usage']) =>
  usage.input_tokens +
  (usage.cache_creation_input_tokens ?? 0) +
  (usage.cache_read_input_tokens ?? 0)

/** What all lanes of a run have in common. */
type Common = Pick<LaneHeader, 'step' | 'mode' | 'model' | 'note'>

export class Lanes {
  readonly #common: Common
  readonly #folder: string
  readonly #isLogged: boolean
  readonly #failed: (error: Error) => void
  readonly #folds = new Map<string, (text: string) => string>()
  readonly #lanes = new Map<MessageParam[], Lane>()
  readonly #replies = new WeakMap<Lane, Message>()
  readonly #numbers = new Map<string, number>()

  /** `failed` hears of the first line that cannot be written. */
  constructor(
    common: Common,
    folder: string,
    isLogged: boolean,
    failed: (error: Error) => void,
  ) {
    this.#common = common
    this.#folder = folder
    this.#isLogged = isLogged
    this.#failed = failed
  }

  /**
   * Starts the log of an array, once: `parent` is the first, then come `sub-1`, … What the
   * array holds already is logged, too.
   */
  open(messages: MessageParam[], settings: LaneSettings): string {
    const known = this.#lanes.get(messages)
    if (known) return known.name
    const name = settings.lane ?? (this.#lanes.size === 0 ? 'parent' : this.next('sub'))
    this.#add(messages, this.#header(name, settings))
    for (const message of messages) this.#lanes.get(messages)?.message(message)
    return name
  }

  /** Takes the next free name, `sub-1`, `sub-2`, …, before anything of the lane is there. */
  next(kind: string): string {
    const taken = existsSync(this.#folder) ? readdirSync(this.#folder) : []
    for (let n = 1 + (this.#numbers.get(kind) ?? 0); ; n++) {
      this.#numbers.set(kind, n)
      if (!taken.includes(`${kind}-${n}.log`)) return `${kind}-${n}`
    }
  }

  /**
   * How large a history is: in tokens, what the API counted for its last request and reply
   * (0 before the first); or in bytes, its next request, as `view` counts it.
   */
  size(messages: MessageParam[], unit: 'tokens' | 'bytes'): number {
    const lane = this.#lanes.get(messages)
    if (!lane) return 0
    const { system, tools } = lane.header
    if (unit === 'bytes') return sizeOf([system, tools, ...this.clean(messages)])
    const usage = this.#replies.get(lane)?.usage
    return usage ? tokensIn(usage) + usage.output_tokens : 0
  }

  /** Reads a lane of this run back; throws when there is none, or its file is broken. */
  read(lane: string, workdir?: string): LaneFile {
    return readBack(this.#folder, lane, workdir, this.#lanes.size > 0)
  }

  /** Line 1 of a lane with these settings, as its file holds it. */
  header(lane: string, settings: LaneSettings): LaneHeader {
    return this.clean(this.#header(lane, settings))
  }

  /** Fills an empty array with a lane that was read back; its file goes on. */
  reopen(messages: MessageParam[], file: LaneFile): void {
    messages.push(...file.messages)
    const [array, before] =
      [...this.#lanes].find(([, { name }]) => name === file.name) ?? []
    if (array) this.#lanes.delete(array)
    this.#add(messages, file.header as LaneHeader, { history: file.messages, before })
  }

  #add(
    messages: MessageParam[],
    header: LaneHeader,
    from: { history?: MessageParam[]; before?: Lane } = {},
  ): string {
    const path = this.#isLogged ? join(this.#folder, `${header.lane}.log`) : undefined
    const options = { fold: this.fold, failed: this.#failed, ...from }
    this.#lanes.set(messages, openLane(path, header, options))
    return header.lane
  }

  #header(lane: string, settings: LaneSettings): LaneHeader {
    const { system, tools, workdir, maxTurns, model, agent, worktree } = settings
    if (!this.#folds.has(workdir)) this.#folds.set(workdir, foldPath(workdir))
    const live = this.#common.mode === 'live'
    return {
      step: this.#common.step,
      lane,
      mode: this.#common.mode,
      model: (live && model) || this.#common.model,
      ...(this.#common.note && { note: this.#common.note }),
      ...(agent && { agent }),
      ...(worktree && { worktree }),
      ...(live && {
        workdir: createHash('sha256').update(workdir).digest('hex').slice(0, 12),
      }),
      system,
      tools: describeTools(tools),
      ...(Number.isFinite(maxTurns) && { max_turns: maxTurns }),
    }
  }

  /** What is done to every string before it is logged: no paths of this machine. */
  fold = (text: string) => {
    let out = text
    for (const fold of this.#folds.values()) out = fold(out)
    return out
  }

  /** A value as a lane's file would hold it. */
  clean<T>(value: T): T {
    return mapStrings(value, (text) => redact(this.fold(text)))
  }

  /** Logs a message, just pushed, in the lane of its array. */
  log(messages: MessageParam[], message: MessageParam): void {
    const lane = this.#lanes.get(messages)
    if (!lane) throw new Error('This array has no log: call session.openLane first.')
    const reply = message.role === 'assistant' ? this.#replies.get(lane) : undefined
    lane.message(message, reply)
    showCalls(lane.name, message)
  }

  /** Writes a line that is no message: a good outcome as information, else a warning. */
  event(messages: MessageParam[], event: string, fields: object): void {
    const isGood =
      event === 'compacted' || ('status' in fields && fields.status === 'completed')
    const level = isGood ? 'info' : 'warn'
    this.#lanes.get(messages)?.event(level, event, fields)
  }

  /** Keeps what a reply says beside its content, until its message is logged. */
  answered(lane: Lane | undefined, reply: Message): void {
    if (lane) this.#replies.set(lane, reply)
  }

  /** The lane of a request's messages, be they in a copy of the array. */
  laneOf(messages: MessageParam[]): Lane | undefined {
    const own = this.#lanes.get(messages)
    if (own) return own
    const lanes = [...this.#lanes]
    return lanes.find(([array]) => array.at(-1) === messages.at(-1))?.[1]
  }

  /** Tokens in and out of an array's requests so far, as an API gave them; else 0. */
  usage(messages: MessageParam[]): { turns: number; input: number; output: number } {
    const { turns = 0, input = 0, output = 0 } = this.#lanes.get(messages)?.sums ?? {}
    return { turns, input, output }
  }

  all(): Lane[] {
    return [...this.#lanes.values()]
  }
}
