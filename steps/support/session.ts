/** What a step opens: its client, its working directory, its lanes, its prompts. */
import { dirname } from 'node:path'
import type Anthropic from '@anthropic-ai/sdk'
import type { Message } from '@anthropic-ai/sdk/resources'
import { explain, RunError, show } from './base/errors.ts'
import type { Lane } from './base/lane.ts'
import { unfold } from './base/paths.ts'
import { createClient } from './model/client.ts'
import { promptsOf, replay } from './model/replay.ts'
import { openPlace, type Place } from './run/folders.ts'
import { Lanes } from './run/lanes.ts'
import { introduce, summarize } from './run/report.ts'
import { readSettings, type Settings } from './run/settings.ts'
import { readPrompts } from './terminal/prompts.ts'
import { complain, print, waitFor } from './terminal/screen.ts'
import { stopAll } from './tools/bash.ts'

/**
 * Opens a step, given its `import.meta.filename`. What stands in the way (an option, a
 * `.env`, a folder) is said in one line, and the program ends with exit code 1.
 */
export function openSession(filename: string): Session {
  return orExit(() => {
    const settings = readSettings(dirname(dirname(filename)), process.argv.slice(2))
    return new Session(settings, openPlace(filename, settings))
  })
}

/** Does what a run cannot begin without; if it fails, says why and ends the program. */
function orExit<T>(begin: () => T): T {
  try {
    return begin()
  } catch (error) {
    complain((error as Error).message)
    process.exit(1)
  }
}

/** What a step's loop comes to: why it ended, and the text of the last reply. */
export type Answer = {
  stopReason: Message['stop_reason'] | 'max_turns' // the API's own word, or ours
  text: string
}

/** Shows an answer; what is none, or no whole one, is an error. */
function tell(answer: Answer): void {
  const { stopReason, text } = Object(answer)
  if (typeof stopReason !== 'string' || typeof text !== 'string') {
    const wanted = 'session.run wants the loop to return { stopReason, text }, strings'
    throw new RunError(`${wanted}, not ${show(answer)}`)
  }
  print(`\n${text}\n`)
  const isEnd = stopReason === 'end_turn'
  if (!isEnd) throw new RunError(`The answer ended early: ${stopReason}.`)
  if (text.trim() === '') throw new RunError("The model's last reply was empty.")
}

export class Session {
  readonly client: Anthropic
  readonly model: string
  readonly workdir: string // absolute path of the folder that the tools work in
  readonly isNew: boolean // whether this run made that folder
  readonly live: boolean
  readonly continued: boolean
  readonly unit: 'tokens' | 'bytes' // tokens where an API counted them, also replayed
  readonly lanes: Lanes
  readonly openLane: Lanes['open']
  readonly log: Lanes['log']
  readonly orExit = orExit
  readonly print = print

  readonly #settings: Settings
  readonly #place: Place
  readonly #isTyped: boolean // then a failed prompt does not fail the run
  #requests = 0
  #stop?: AbortController
  #interrupted = 0

  constructor(settings: Settings, place: Place) {
    const { live } = settings
    const { step, recording, workdir, isNew } = place
    const first = recording?.lanes[0].header
    this.#settings = settings
    this.#place = place
    this.workdir = workdir
    this.live = live !== undefined
    this.continued = settings.continued
    this.isNew = isNew
    this.unit = live || first?.mode === 'live' ? 'tokens' : 'bytes'
    this.#isTyped = this.live && process.stdin.isTTY && settings.words === ''
    this.model = live?.model ?? String(first?.model)
    const mode = live ? 'live' : 'offline'
    this.lanes = new Lanes({ step, mode, model: this.model, note: first?.note }, place)
    const { open, log, of } = this.lanes
    this.openLane = open
    this.log = log
    const tell = (line: string) => print(line, 'yellow')
    const offline = replay({ folder: '', lanes: [], ...recording, laneOf: of, tell })
    const watcher = { laneOf: of, asking: this.#asking }
    this.client = createClient(live ?? offline, watcher)
    process.on('SIGINT', this.#interrupt)
    introduce(this.model, settings, place)
  }

  /** A signal for the prompt at work: Ctrl+C aborts it, a second one ends the program. */
  stopSignal(): AbortSignal {
    this.#stop = new AbortController()
    return this.#stop.signal
  }

  /** What went wrong, in a line for a model: where a request went is not its business. */
  explain(error: unknown): string {
    const said = explain(error) ?? String((error as Error)?.message ?? error)
    return said.split('\n')[0]
  }

  /**
   * Answers the reader's prompts one by one; a failed one is explained in a line and does
   * not end the session. At the end says what each lane holds and where the log is, and
   * the program ends.
   */
  async run(ownPrompt: string, answer: (prompt: string) => Promise<Answer>) {
    const { recording, number, logs } = this.#place
    const recorded = this.#settings.replay && recording && promptsOf(recording.lanes[0])
    const own = recorded ? unfold(recorded, this.workdir) : [ownPrompt]
    try {
      for await (const prompt of readPrompts(number, own, this.#settings)) {
        // What was typed stands on the terminal already.
        print(this.#isTyped ? '' : `\n${prompt}\n`)
        this.#requests = 0
        const asked = Promise.resolve(prompt.toWellFormed()).then(answer)
        await asked.then(tell).catch(this.#failed)
        if (this.#isStopped && !this.#isTyped) break
        this.#stop = undefined
      }
    } catch (error) {
      this.#failed(error)
    }
    stopAll()
    // A tool that was given up may still hold the process.
    setTimeout(() => process.exit(), 500).unref()
    summarize(this.lanes.all, logs, this.live)
  }

  get #isStopped() {
    return this.#stop?.signal.aborted ?? false
  }

  #failed = (error: unknown): void => {
    const { message = String(error), stack = message } = error as Partial<Error>
    const isKnown = this.#isStopped || error instanceof RunError
    complain(explain(error, this.#settings.live) ?? (isKnown ? message : stack))
    if (!this.#isTyped) process.exitCode = this.#isStopped ? 130 : 1
  }

  #asking = (lane: Lane): void => {
    this.#requests += 1
    const limit = this.#settings.live?.requestLimit ?? Number.POSITIVE_INFINITY
    const many = `stopped after ${limit} requests for one prompt (see REQUEST_LIMIT)`
    if (this.#requests > limit) throw new RunError(many)
    waitFor(`${lane.name} waits for ${this.model}`)
  }

  #interrupt = (): void => {
    // One Ctrl+C can arrive twice: from the terminal and from the process that runs this.
    if (Date.now() - this.#interrupted < 200) return
    this.#interrupted = Date.now()
    if (!this.#stop || this.#isStopped) process.exit(130)
    this.#stop.abort(new Error('Stopped by Ctrl+C.'))
  }
}

// What was started dies on exit.
for (const [signal, number] of Object.entries({ SIGTERM: 15, SIGHUP: 1, SIGQUIT: 3 })) {
  if (signal === 'SIGQUIT' && process.platform === 'win32') continue // none there
  process.on(signal, () => process.exit(128 + number))
}
