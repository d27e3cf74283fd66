/** What the command line, `.env` and the shell say about a run. */
import { isUtf8 } from 'node:buffer'
import { existsSync, readFileSync } from 'node:fs'
import { homedir } from 'node:os'
import { join } from 'node:path'
import { parseArgs } from 'node:util'
import dotenv from 'dotenv'
import { type Endpoint, GO_LIVE } from '../base/errors.ts'
import { hide, isSecretName } from '../base/secrets.ts'
import { print } from '../terminal/screen.ts'

const DEFAULT_MODEL = 'claude-sonnet-5-5'
const HELP = `Usage: npx tsx steps/NN-name.ts [OPTION] [PROMPT]

Without a key the step replays its recording, with its own prompt. With a key in .env it
asks a real model: what PROMPT says, what is typed, or each line of a pipe.

  --live           ask a real model, with the shell's key if .env names none
  --offline        replay the recording, whatever .env says
  --replay FOLDER  replay another recording, such as a live run's log
  --continue       go on with the last live run (from step 09 on)
  -h, --help       show this`

const OPTIONS = {
  live: { type: 'boolean' },
  offline: { type: 'boolean' },
  replay: { type: 'string' },
  continue: { type: 'boolean' },
  help: { type: 'boolean', short: 'h' },
} as const

const SHORTEST_SECRET = 12 // a shorter value may stand in any text

export type Settings = {
  words: string // behind the command; '' when there are none
  continued: boolean // --continue: the last live run goes on
  replay?: string // the folder named with --replay
  live?: Endpoint & { requestLimit: number }
  workdir?: string // WORKDIR, a directory of the reader's own
  notes: string[] // what the reader should know before the run, a line each
}

/**
 * Reads the settings. Live when `.env` names a key, or with --live; then the shell's
 * variables count too, where `.env` is silent. With --help the program ends here.
 *
 * @throws {Error} naming the option, variable or file that cannot be used
 */
export function readSettings(root: string, argv: string[]): Settings {
  const given = { args: argv, options: OPTIONS, allowPositionals: true }
  const { values, positionals } = parseArgs(given)
  if (values.help) {
    print(HELP)
    process.exit(0)
  }
  const notes: string[] = []
  const shell = { ...process.env }
  hideSecrets(shell)
  const file = readEnvFile(join(root, '.env'), notes)
  const usesShell = values.live === true
  const env = { ...(usesShell && shell), ...file }
  // Nothing of the shell reaches the SDK unless it was asked for: an exported base URL,
  // header or log level would change what a step does, an exported key would cost money.
  for (const name of Object.keys(shell)) {
    const isMeant = usesShell && !isSecretName(name)
    if (name.startsWith('ANTHROPIC_') && !isMeant) delete process.env[name]
  }
  const key = credential(file, '.env') ?? credential(env, 'the shell')
  const workdir = (file?.WORKDIR || shell.WORKDIR || '').trim()
  const settings: Settings = {
    words: positionals.join(' ').trim(),
    notes,
    continued: values.continue === true,
    replay: values.replay,
    // What a shell does with it, `.env` does not.
    workdir: workdir.replace(/^~(?=$|[\\/])/, () => homedir()) || undefined,
  }
  const isOffline = values.offline || values.replay !== undefined
  if (values.continue && (isOffline || !key)) {
    throw new Error(`--continue goes on with a live run. ${GO_LIVE}`)
  }
  if (isOffline && values.live) throw new Error('--live excludes --offline and --replay.')
  if (isOffline) return settings
  if (!key) {
    const lacks = '.env names no key: set ANTHROPIC_API_KEY or ANTHROPIC_AUTH_TOKEN in it'
    if (file) notes.push(lacks)
    const needed = `--live needs a key. ${GO_LIVE}`
    if (values.live) throw new Error([...notes, needed].join('\n'))
    const unused = 'is set in the shell, not in .env: not used without --live'
    const { name } = credential(shell, 'the shell') ?? {}
    if (name) notes.push(`${name} ${unused}`)
    return settings
  }
  if (!/^[\x21-\x7e]+$/.test(key.value)) {
    const odd = 'a character that no key has (a space, a line break, a curly quote?)'
    throw new Error(`${key.name} in ${key.source} holds ${odd}: copy the key again.`)
  }
  if (key.value.length < SHORTEST_SECRET) {
    const short = `has under ${SHORTEST_SECRET} characters`
    notes.push(`${key.name} ${short}: it is not redacted from logs`)
  }
  const model = env.MODEL_ID || DEFAULT_MODEL
  const baseURL = cleanBaseURL(env.ANTHROPIC_BASE_URL || 'https://api.anthropic.com')
  const limit = env.REQUEST_LIMIT || '200'
  if (!/^[1-9]\d*$/.test(limit)) {
    throw new Error(`REQUEST_LIMIT is ${limit}: it must be a whole number from 1`)
  }
  const live = { credential: key, baseURL, model, requestLimit: Number(limit) }
  return { ...settings, live }
}

/** What a `.env` file sets, if it can be read; an empty value says nothing. */
function readEnvFile(path: string, notes: string[]): NodeJS.ProcessEnv | undefined {
  if (!existsSync(path)) return undefined
  const raw = readFileSync(path)
  if (!isUtf8(raw) || raw.includes(0)) {
    notes.push('.env is not UTF-8 text and was not read: save it as UTF-8 (not UTF-16)')
    return undefined
  }
  const text = raw.toString()
  // A key that a later line replaces, or that is commented out, is a key all the same.
  const lines = text.split(/\r?\n/).map((line) => line.replace(/^[#\s]+/, ''))
  for (const part of [text, ...lines]) hideSecrets(dotenv.parse(part))
  const set = Object.entries(dotenv.parse(text)).filter(([, value]) => value)
  return Object.fromEntries(set)
}

function credential(from: NodeJS.ProcessEnv | undefined, source: string) {
  const name = ['ANTHROPIC_API_KEY', 'ANTHROPIC_AUTH_TOKEN'].find((name) => from?.[name])
  return name ? { name, value: from?.[name] ?? '', source } : undefined
}

function hideSecrets(variables: NodeJS.ProcessEnv): void {
  const secret = Object.entries(variables).filter(([name]) => isSecretName(name))
  const values = secret.map(([, value = '']) => value)
  hide(values.filter(({ length }) => length >= SHORTEST_SECRET))
}

/** The part of a base URL that the SDK puts `/v1/messages` behind. */
function cleanBaseURL(given: string): string {
  if (!/^https?:\/\/[^\s@?#]+$/i.test(given) || !URL.canParse(given)) {
    const without = 'without user name, password or query'
    throw new Error(`ANTHROPIC_BASE_URL must be an http:// or https:// URL ${without}`)
  }
  return given.replace(/\/*(\/v1(\/messages)?)?\/*$/, '')
}
