/** The lanes of a run: which messages array is logged in which file. */
import { createHash } from 'node:crypto'
import { join } from 'node:path'
import type { MessageParam } from '@anthropic-ai/sdk/resources/messages'
import { RunError } from '../base/errors.ts'
import { Lane } from '../base/lane.ts'
import { type LaneFile, type LaneHeader, lanesIn } from '../base/lane-file.ts'
import { textOf } from '../base/messages.ts'
import { Paths } from '../base/paths.ts'
import { print, showCalls } from '../terminal/screen.ts'
import { describeTools } from '../tools/bash.ts'
import type { Tool } from '../tools/tool.ts'
import { writtenCall } from '../tools/written.ts'
import type { Place } from './folders.ts'

/** What a lane runs with, beside its messages. */
export type LaneSettings = {
  system: string
  tools: Tool[]
  workdir: string
  maxTurns?: number
  model?: string // where it is not the run's own
  agent?: string // the profile's name
  worktree?: string // the branch of its worktree
  lane?: string // its name, where that was taken before
}

type Common = Pick<LaneHeader, 'step' | 'mode' | 'model' | 'note'>

export class Lanes {
  readonly all: Lane[] = [] // in the order of their opening; reopened ones once more
  readonly folder: string
  readonly #common: Common
  readonly #paths: Paths
  readonly #names: Set<string>
  readonly #lanes = new Map<MessageParam[], Lane>()

  constructor(common: Common, { logs, workdir }: Pick<Place, 'logs' | 'workdir'>) {
    this.#common = common
    this.folder = logs
    this.#paths = new Paths(workdir)
    this.#names = new Set(lanesIn(logs))
  }

  /** Begins a lane's file, or goes on with the `old` one, for this array. */
  start(messages: MessageParam[], header: LaneHeader, workdir: string, old?: LaneFile) {
    const dest = join(this.folder, `${header.lane}.log`)
    const lane = new Lane(dest, header, workdir, this.#paths, old?.lines)
    for (const [array, { name }] of this.#lanes) {
      if (name === lane.name) this.#lanes.delete(array)
    }
    this.#lanes.set(messages, lane)
    this.all.push(lane)
    return lane
  }

  /**
   * Starts the log of an array, once: `parent` is the first, then come `sub-1`, … What
   * the array holds already is logged, too.
   */
  open = (messages: MessageParam[], settings: LaneSettings): string => {
    const known = this.#lanes.get(messages)
    if (known) return known.name
    const name = settings.lane ?? (this.all.length === 0 ? 'parent' : this.next('sub'))
    const header = this.header(name, settings)
    const lane = this.start(messages, header, settings.workdir)
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

  /** The lane of an array, or of one made from it, as a request may hold. */
  of = (messages: MessageParam[]): Lane => {
    const own = this.#lanes.get(messages)
    if (own) return own
    const first = JSON.stringify(messages[0])
    const isLike = ([array]: [MessageParam[], Lane]) =>
      messages.some((one) => array.includes(one)) || JSON.stringify(array[0]) === first
    const lane = [...this.#lanes].find(isLike)?.[1]
    if (lane) return lane
    throw new RunError('This array has no log: call session.openLane first.')
  }

  /** Logs a message, just pushed, in the lane of its array, and shows its calls. */
  log = (messages: MessageParam[], message: MessageParam): void => {
    const lane = this.of(messages)
    const isReply = lane.message(message)
    showCalls(lane.name, message)
    const tool = isReply && writtenCall(textOf(message), lane.header.tools)
    if (!tool) return
    lane.event('warn', 'call_as_text', { tool })
    print(`${lane.name} wrote a call of ${tool} as text: it was not run.`, 'yellow')
  }
}
