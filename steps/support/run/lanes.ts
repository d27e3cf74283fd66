/** The lanes of a run: which messages array is logged in which file. */
import { createHash } from 'node:crypto'
import { join } from 'node:path'
import type { MessageParam } from '@anthropic-ai/sdk/resources/messages'
import { Lane } from '../base/lane.ts'
import { type LaneFile, type LaneHeader, lanesIn } from '../base/lane-file.ts'
import { textOf } from '../base/messages.ts'
import { Paths, unfold } from '../base/paths.ts'
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
  /** The branch of its worktree. */
  worktree?: string
  /** The lane's name, where it was taken before. */
  lane?: string
}

type Common = Pick<LaneHeader, 'step' | 'mode' | 'model' | 'note'>
/** A lane that was read back, and the directory in which it goes on. */
type Recovered = LaneFile & { workdir: string }

export class Lanes {
  /** In the order of their opening; reopened ones once more. */
  readonly all: Lane[] = []
  readonly #common: Common
  readonly #folder: string
  readonly #paths: Paths
  readonly #names: Set<string>
  readonly #lanes = new Map<MessageParam[], Lane>()

  constructor(common: Common, { logs, workdir }: Pick<Place, 'logs' | 'workdir'>) {
    this.#common = common
    this.#folder = logs
    this.#paths = new Paths(workdir)
    this.#names = new Set(lanesIn(logs))
  }

  #start(messages: MessageParam[], header: LaneHeader, workdir: string, old?: LaneFile) {
    const dest = join(this.#folder, `${header.lane}.log`)
    const lane = new Lane(dest, header, workdir, this.#paths, old?.lines)
    this.#lanes.set(messages, lane)
    this.all.push(lane)
    return lane
  }

  /**
   * Starts the log of an array, once: `parent` is the first, then come `sub-1`, … What
   * the array holds already is logged, too.
   */
  open(messages: MessageParam[], settings: LaneSettings): string {
    const known = this.#lanes.get(messages)
    if (known) return known.name
    const name = settings.lane ?? (this.all.length === 0 ? 'parent' : this.next('sub'))
    const header = this.header(name, settings)
    const lane = this.#start(messages, header, settings.workdir)
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
  read(lane: string, workdir = ''): Recovered {
    const file = recoverLane(this.#folder, lane, this.all.length > 0)
    const messages = unfold(file.messages, workdir)
    return { ...file, messages, workdir }
  }

  /** Fills an empty array with a lane that was read back; its file goes on. */
  reopen(messages: MessageParam[], file: Recovered): void {
    messages.push(...file.messages)
    for (const [array, { name }] of this.#lanes) {
      if (name === file.name) this.#lanes.delete(array)
    }
    this.#start(messages, file.header as LaneHeader, file.workdir, file)
  }

  /** Line 1 of a lane with these settings, as its file holds it. */
  header(lane: string, settings: LaneSettings): LaneHeader {
    const { system, tools, workdir, maxTurns, model, agent, worktree } = settings
    const { step, mode, note } = this.#common
    const live = mode === 'live'
    const place = createHash('sha256').update(workdir).digest('hex').slice(0, 12)
    return this.#paths.clean(workdir, {
      step,
      lane,
      mode,
      model: (live && model) || this.#common.model,
      ...(note && { note }),
      ...(agent && { agent }),
      ...(worktree && { worktree }),
      ...(live && { workdir: place }),
      system,
      tools: describeTools(tools),
      ...(Number.isFinite(maxTurns) && { max_turns: maxTurns }),
    })
  }

  /** Logs a message, just pushed, in the lane of its array, and shows its calls. */
  log(messages: MessageParam[], message: MessageParam): void {
    const lane = this.#lanes.get(messages)
    if (!lane) throw new Error('This array has no log: call session.openLane first.')
    const isReply = lane.message(message)
    showCalls(lane.name, message)
    const tool = isReply && writtenCall(textOf(message), lane.header.tools)
    if (!tool) return
    lane.event('warn', 'call_as_text', { tool })
    print(`${lane.name} wrote a call of ${tool} as text: it was not run.`, 'yellow')
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

  /** See `Lane.size`. */
  size(messages: MessageParam[], unit: 'tokens' | 'bytes'): number {
    return this.#lanes.get(messages)?.size(messages, unit) ?? 0
  }

  /** Replies since an array's lane was opened, and their tokens as an API gave them. */
  usage(messages: MessageParam[]): { turns: number; input: number; output: number } {
    return this.#lanes.get(messages)?.usage ?? { turns: 0, input: 0, output: 0 }
  }
}
