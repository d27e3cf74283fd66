// Logs and sessions that are opened or dropped.

import { Broken, brief, isMessage, Refusal, readLane } from './lane.js'
import { makeRun } from './run.js'
import { isSession, readSession } from './session.js'
import { runs, words } from './view.js'

const MOST_BYTES = 256 * 1024 * 1024
const MOST_FILES = 2000
const IS_READ = /\.(log|jsonl|meta\.json)$/

/** What is said above the runs: a key of the words' `notices`, and its values. */
export const notices = []
export const tell = (key, values) => notices.push({ key, values })

/** Reads files, makes runs of them, names what is no log, and returns the first run. */
export async function openFiles(files) {
  if (files.length > MOST_FILES) tell('tooMany', { n: MOST_FILES })
  const [lanes, sessions] = [[], new Map()]
  const metas = []
  for (const { file, folder } of files.slice(0, MOST_FILES)) {
    const { name } = file
    await heeding(name, async () => {
      if (file.size > MOST_BYTES) throw new Refusal('tooLarge', { file: name })
      const text = await file.text()
      if (name.endsWith('.meta.json')) metas.push({ name, text })
      else if (isSession(text)) addTo(sessions, sessionOf(text), { name, text })
      else if (!/journal\.jsonl$/.test(name))
        lanes.push({ folder, lane: openLane(name, text) })
    })
  }
  const made = groupLanes(lanes).map((group) => addRun(stepOf(group), group))
  for (const [id, those] of sessions) {
    const file = (those.find(({ name }) => !name.startsWith('agent-')) ?? those[0]).name
    await heeding(file, () => {
      const read = readSession([...those, ...metas]).filter(({ lines }) =>
        lines.some(isMessage),
      )
      if (read.length === 0) throw new Refusal('noMessages', { file })
      made.push(addRun(`session-${brief(id).slice(0, 8)}`, read))
    })
  }
  return made[0]
}

/** What one file has wrong is told, and the others are read all the same. */
async function heeding(file, work) {
  try {
    await work()
  } catch (error) {
    const { key, values } = error.notice ?? { key: 'unreadable' }
    tell(key, values ?? { file, why: error.message })
  }
}

function openLane(file, text) {
  const lane = readLane(file, text)
  const n = lane.lines.filter((line) => line instanceof Broken).length
  if (n > 0) tell('broken', { file, n })
  return lane
}

/** A session goes on in a file whose first rows may be of another: the last ones count. */
function sessionOf(text) {
  const at = text.lastIndexOf('"sessionId"')
  return /^"sessionId"\s*:\s*"([^"]*)"/.exec(text.slice(at, at + 300))?.[1] ?? '?'
}

const addTo = (map, key, value) => map.set(key, [...(map.get(key) ?? []), value])

/** Lanes of one folder and step are one run, unless two have the same name. */
function groupLanes(opened) {
  const groups = []
  for (const { folder, lane } of opened) {
    const group = groups.find(
      ({ of, lanes }) =>
        of.folder === folder &&
        of.step === lane.header.step &&
        lanes.every(({ name }) => name !== lane.name),
    )
    if (group) group.lanes.push(lane)
    else groups.push({ of: { folder, step: lane.header.step }, lanes: [lane] })
  }
  return groups.map(({ of, lanes }) => Object.assign(lanes, { folder: of.folder }))
}

const stepOf = (lanes) => brief(lanes[0].header.step ?? '?')

/** A run that is dropped again takes the place of the one that was there. */
function addRun(title, lanes) {
  // Two runs of one step differ by the folder that they came from.
  const folder = lanes.folder && lanes.folder !== title ? `-${lanes.folder}` : ''
  const name = `dropped-${title}${folder}`
  const isAgain = runs.has(name)
  const shown = folder ? lanes.folder.split('/').at(-1) : title
  const label = `${shown} (${words().dropped})`
  const run = makeRun(name, label, lanes, false)
  runs.set(name, run)
  const names = run.lanes.map((lane) => lane.name).join(', ')
  tell(isAgain ? 'again' : 'opened', { run: label, lanes: names })
  return run
}

/**
 * The files of a drop; of a folder, at any depth, those that can be read here. Browsers
 * have two ways into a folder; the newer one also works in a page opened from disk.
 */
export async function filesOf({ items }) {
  // Only while the event lasts can they be asked for.
  const dropped = [...items]
    .filter(({ kind }) => kind === 'file')
    .map((item) => ({
      file: item.getAsFile(),
      entry: item.webkitGetAsEntry?.(),
      handle: item.getAsFileSystemHandle?.(),
    }))
  const files = []
  for (const { file, entry, handle } of dropped) {
    if (!entry?.isDirectory) files.push({ file, folder: '' })
    else {
      try {
        files.push(...(handle ? await filesIn(await handle) : await filesBelow(entry)))
      } catch (error) {
        tell('folder', { file: entry.name, why: error.message })
      }
    }
  }
  if (files.length === 0 && notices.length === 0) tell('noFiles', {})
  return files
}

async function filesIn(handle, folder = handle.name) {
  const files = []
  for await (const child of handle.values()) {
    if (child.kind === 'directory') {
      files.push(...(await filesIn(child, `${folder}/${child.name}`)))
    } else if (IS_READ.test(child.name)) {
      files.push({ file: await child.getFile(), folder })
    }
  }
  return files
}

async function filesBelow(entry) {
  const files = []
  const reader = entry.createReader()
  for (;;) {
    const children = await new Promise((done, fail) => reader.readEntries(done, fail))
    if (children.length === 0) return files
    for (const child of children) {
      if (child.isDirectory) files.push(...(await filesBelow(child)))
      else if (IS_READ.test(child.name)) {
        const file = await new Promise((done, fail) => child.file(done, fail))
        files.push({ file, folder: entry.fullPath.replace(/^\//, '') })
      }
    }
  }
}
