/** What a step opens: its client, its working directory, its lanes, its prompts. */
import { basename, dirname } from 'node:path'
import process from 'node:process'
import type Anthropic from '@anthropic-ai/sdk'
import type { Message, MessageParam } from '@anthropic-ai/sdk/resources'
import { explain, RunError, show } from './base/errors.ts'
import type { Lane } from './base/lane-file.ts'
import { createClient } from './model/client.ts'
import { promptsOf, replay } from './model/replay.ts'
import { openPlace, type Place } from './run/folders.ts'
import { type LaneSettings, Lanes } from './run/lanes.ts'
import { introduce, shorten, summarize } from './run/report.ts'
import { readSettings, type Settings } from './run/settings.ts'
import { confirm, readPrompts } from './terminal/prompts.ts'
import { complain, print, waitFor } from './terminal/screen.ts'
import { stopAll } from './tools/bash.ts'

/**
 * Opens a step, given its `import.meta.filename`. What stands in the way (an option, a
 * `.env`, a folder) is said in one line, and the program ends with exit code 1.
 */
export function openSession(filename: string): Session {
  try {
    const root = dirname(dirname(filename))
    const step = basename(filename).replace(/\.\w+$/, '')
    const settings = readSettings(root, process.argv.slice(2))
    return new Session(step, settings, openPlace(root, step, settings))
  } catch (error) {
    complain((error as Error).message)
    process.exit(1)
  }
}

/** What a step's loop comes to: why it ended, and the text of the last reply. */
export type Answer = {
  /** The API's own word, or `max_turns` where the loop itself had enough. */
  stopReason: Message['stop_reason'] | 'max_turns'
  text: string
}

type Answering = (prompt: string) => Promise<Answer>

function checked(answer: Answer): Answer {
  if (answer && 'stopReason' in answer && typeof answer.text === 'string') return answer
  throw new RunError(
    `session.run wants the step's loop to return { stopReason, text }, not ${show(answer)}.`,
  )
}

export class Session {
  readonly client: Anthropic
  readonly model: string
  /** Absolute path of the folder that the tools work in. */
  readonly workdir: string
  /** Whether a real model is asked. */
  readonly live: boolean
  /** Whether the last live run goes on (--continue). */
  readonly continued: boolean
  /** What sizes are told in: tokens where an API counted them, in this run or in the one replayed. */
  readonly unit: 'tokens' | 'bytes'
  /** Whether the working directory was made by this run. */
  readonly isNew: boolean
  /** What is written of the run, array by array. */
  readonly lanes: Lanes

  readonly #step: string
  readonly #settings: Settings
  readonly #place: Place
  #asked = Promise.resolve(false)
  #requests = 0
  #stop?: AbortController
  #interrupted = 0
  #unlogged?: Error

  constructor(step: string, settings: Settings, place: Place) {
    const { live } = settings
    const { recording, workdir, logs, broken } = place
    const first = recording?.lanes[0].header
    this.#step = step
    this.#settings = settings
    this.#place = place
    this.#unlogged = broken
    this.workdir = workdir
    this.live = live !== undefined
    this.continued = settings.continued
    this.isNew = place.isNew
    this.unit = live || first?.mode === 'live' ? 'tokens' : 'bytes'
    this.model = live?.model ?? String(first?.model)
    const mode = live ? ('live' as const) : ('offline' as const)
    const common = { step, mode, model: this.model, note: first?.note }
    this.lanes = new Lanes(common, logs, broken === undefined, (error) => {
      this.#unlogged ??= error
    })
    const offline = replay({
      folder: shorten(recording?.folder ?? ''),
      lanes: recording?.lanes ?? [],
      workdir,
      laneOf: ({ messages }) => this.lanes.laneOf(messages)?.name,
      clean: (value) => this.lanes.clean(value),
      tell: (line) => print(line, 'yellow'),
    })
    this.client = createClient(live ?? offline, {
      laneOf: ({ messages }) => this.lanes.laneOf(messages),
      asking: (lane) => this.#asking(lane),
      answered: (lane, reply) => {
        waitFor('')
        this.lanes.answered(lane, reply)
      },
    })
    process.on('SIGINT', () => this.#interrupt())
    introduce(step, this.model, settings, place)
  }

  /**
   * Starts the log of a messages array, unless it has one: the first is `parent`, then
   * come `sub-1`, `sub-2`, … Returns the lane's name.
   */
  openLane(messages: MessageParam[], settings: LaneSettings): string {
    return this.lanes.open(messages, settings)
  }

  /** Does what a run cannot begin without; if it fails, says why and ends the program. */
  orExit(begin: () => void): void {
    try {
      begin()
    } catch (error) {
      complain((error as Error).message)
      process.exit(1)
    }
  }

  /** Writes a message, just pushed, into the log of its array. */
  log(messages: MessageParam[], message: MessageParam): void {
    this.lanes.log(messages, message)
  }

  /** Asks the reader yes or no, one question at a time; no where nobody can be asked. */
  async ask(question: string, signal?: AbortSignal): Promise<boolean> {
    if (!this.live || !process.stdin.isTTY) return false
    this.#asked = this.#asked.then(() => confirm(question, signal))
    return this.#asked
  }

  /** A signal for the prompt at work: Ctrl+C aborts it, a second one ends the program. */
  stopSignal(): AbortSignal {
    this.#stop = new AbortController()
    return this.#stop.signal
  }

  /** What went wrong with a request, for a model: where it went is not its business. */
  explain(error: unknown): string {
    return explain(error) ?? String((error as Error)?.message ?? error)
  }

  /** Shows the reader a text, as it stands. */
  print(text: string): void {
    print(text)
  }

  /**
   * Answers the reader's prompts one by one; a failed one is explained in a line and does
   * not end the session. At the end says what each lane holds and where the log is, and
   * the program ends.
   */
  async run(ownPrompt: string, answer: Answering): Promise<void> {
    const { replay, words } = this.#settings
    const { recording } = this.#place
    const own = replay && recording ? promptsOf(recording.lanes[0]) : [ownPrompt]
    // What was typed stands on the terminal already.
    const isTyped = this.live && process.stdin.isTTY && words === ''
    try {
      for await (const prompt of readPrompts(
        this.#step.slice(0, 2),
        own,
        this.#settings,
      )) {
        print(isTyped ? '' : `\n${prompt}\n`)
        await this.#answer(prompt, answer)
        if (process.exitCode === 130) break
      }
    } catch (error) {
      this.#failed(error)
    }
    stopAll()
    // A tool that was given up may still hold the process.
    setTimeout(() => process.exit(), 500).unref()
    summarize(this.lanes.all(), this.live, this.#place.logs, this.#unlogged)
  }

  async #answer(prompt: string, answer: Answering) {
    this.#requests = 0
    try {
      const { text, stopReason } = checked(await answer(prompt))
      print(`\n${text}\n`)
      if (stopReason !== 'end_turn') {
        throw new RunError(`The answer ended early: ${stopReason}.`)
      }
      if (text.trim() === '') throw new RunError("The model's last reply was empty.")
    } catch (error) {
      this.#failed(error)
    } finally {
      this.#stop = undefined
    }
  }

  #failed(error: unknown): void {
    const { message = String(error), stack = message } = error as Partial<Error>
    const stopped = this.#stop?.signal.aborted
    const isKnown = stopped || error instanceof RunError
    complain(explain(error, this.#settings.live) ?? (isKnown ? message : stack))
    if (!this.live || !process.stdin.isTTY) process.exitCode = stopped ? 130 : 1
  }

  #asking(lane?: Lane): void {
    this.#requests += 1
    const limit = this.#settings.live?.requestLimit ?? Number.POSITIVE_INFINITY
    if (this.#requests > limit) {
      throw new RunError(
        `stopped after ${limit} requests for one prompt (see REQUEST_LIMIT)`,
      )
    }
    waitFor(`${lane?.name ?? this.#step} waits for ${this.model}`)
  }

  #interrupt(): void {
    // One Ctrl+C can arrive twice: from the terminal and from the process that runs this.
    if (Date.now() - this.#interrupted < 200) return
    this.#interrupted = Date.now()
    if (!this.#stop || this.#stop.signal.aborted) process.exit(130)
    this.#stop.abort(new Error('Stopped by Ctrl+C.'))
  }
}

// What was started dies on exit.
for (const [signal, number] of Object.entries({ SIGTERM: 15, SIGHUP: 1, SIGQUIT: 3 })) {
  if (signal === 'SIGQUIT' && process.platform === 'win32') continue // none there
  process.on(signal, () => process.exit(128 + number))
}
