// The page itself: what is shown, its address, and moving through a run.

import { roleInStory } from './card.js'
import { openingOf } from './facts.js'
import { filesOf, notices, openFiles, tell } from './files.js'
import { drawFound, drawJumps, nextFound, nextJump } from './finder.js'
import { Broken, brief, isMessage, readLane } from './lane.js'
import { drawLinks } from './links.js'
import { drawNow, drawPlot, scale } from './plot.js'
import { makeRun } from './run.js'
import { cards, clearStage, drawStage } from './stage.js'
import {
  comparison,
  drawBars,
  drawKinds,
  drawNumbers,
  drawOrigin,
  drawSum,
} from './told.js'
import {
  $,
  addressOf,
  el,
  ICONS,
  number,
  runs,
  say,
  setIcon,
  view,
  WORDS,
  words,
} from './view.js'

const FIRST_SHOWN = '04-subagent'
const PAUSE = 1300 // between two messages, in milliseconds
const isCalm = matchMedia('(prefers-reduced-motion: reduce)')
let timer
let addressTimer

/* What is shown, and its address. */

/** Shows what the address names: `?lang=zh&behind=02-tool-use#04-subagent/7`. */
function openAddress() {
  clearTimeout(addressTimer)
  notices.length = 0
  const query = new URLSearchParams(location.search)
  const [, hash, moment] = /^#?(.*?)(?:\/(\d+))?$/s.exec(location.hash)
  const name = decode(hash)
  view.language = Object.keys(WORDS).find((it) => it === query.get('lang'))
  view.behind = query.get('behind') ?? undefined
  if (name && !runs.has(name)) tell('unknown', { run: name })
  showRun(runs.get(name) ?? runs.get(FIRST_SHOWN) ?? [...runs.values()][0], moment)
}

function decode(text) {
  try {
    return decodeURIComponent(text)
  } catch {
    return text // typed by hand, perhaps
  }
}

/** A little late, for browsers refuse an address that changes many times a second. */
function writeAddress() {
  clearTimeout(addressTimer)
  const { hash } = location
  addressTimer = setTimeout(() => {
    if (location.hash !== hash) return // a link was followed meanwhile
    const query = new URLSearchParams()
    if (view.language) query.set('lang', view.language)
    if (view.behind !== undefined) query.set('behind', view.behind)
    const search = String(query) ? `?${query}` : location.pathname
    history.replaceState(null, '', search + addressOf(view.run, view.moment))
  }, 150)
}

/** Shows a run at a moment, or where a report has just come back. */
function showRun(run, moment = openingOf(run)) {
  pause()
  view.run = run
  view.moment = clamp(Number(moment))
  $('search').value = ''
  drawAll()
  scrollToMoment('auto')
}

const clamp = (moment) => Math.min(view.run.moments.length, Math.max(1, moment))

function drawAll() {
  document.documentElement.lang = words() === WORDS.zh ? 'zh-Hans' : 'en'
  document.title = `${view.run.label} · ${words().title}`
  for (const node of document.querySelectorAll('[data-words]')) {
    node.textContent = node.dataset.words.split('.').reduce((it, key) => it[key], words())
  }
  for (const node of document.querySelectorAll('[data-label]')) {
    node.setAttribute('aria-label', words()[node.dataset.label])
    if (node.id in ICONS) setIcon(node.id, words()[node.dataset.label])
  }
  $('search').placeholder = words().search
  $('language').textContent = words().language
  $('language').lang = words() === WORDS.zh ? 'en' : 'zh-Hans'
  drawRuns()
  drawNotices()
  drawSum()
  drawKinds()
  drawOrigin()
  drawNumbers()
  drawFold()
  drawJumps()
  clearStage()
  drawPlot(comparison())
  drawMoment()
  measurePanel()
}

/** Draws what a step changes. */
function drawMoment() {
  const { run, moment } = view
  const { length } = run.moments
  const at = say(words().at, { m: number(moment), n: number(length) })
  $('slider').max = Math.max(1, length)
  $('slider').value = moment
  $('slider').disabled = length === 0
  $('slider').setAttribute('aria-valuetext', at)
  $('count').textContent = `${number(moment)} / ${number(length)}`
  for (const id of ['first', 'back']) $(id).disabled = moment <= 1
  for (const id of ['forward', 'last']) $(id).disabled = moment >= length
  $('play').disabled = length === 0
  $('jump').value = [...$('jump').options].some(({ value }) => value === `${moment}`)
    ? `${moment}`
    : ''
  drawPlay()
  drawStage()
  drawNow()
  drawBars()
  drawFound()
  drawSentence()
}

/** The moment in a sentence: this is what a screen reader says at each step. */
function drawSentence() {
  const now = view.run.moments[view.moment - 1]
  if (!now) return $('moment').replaceChildren(words().noMessages)
  const { lane, index } = now
  const line = lane.lines[index]
  const { caption, ...about } = roleInStory(now)
  const role = isMessage(line) ? ` ${lane.counts[index + 1]}, ${line.role}` : ''
  const isEvent = caption === 'event' && !(line instanceof Broken)
  const known = isEvent && Object.hasOwn(words().events, line.event)
  const event = [line.event, known ? words().events[line.event] : line.status]
  const told = isEvent
    ? event.filter(Boolean).map(brief).join(', ')
    : say(words().captions[caption], about)
  const name = el('b.moment-name', { lane }, lane.name + role)
  $('moment').replaceChildren(name, el('span', {}, `: ${told}`))
}

function drawRuns() {
  const all = [...runs.values()]
  const links = all.map((run) => {
    const current = run === view.run ? 'page' : undefined
    return el('a.run', { href: addressOf(run), 'aria-current': current }, run.label)
  })
  const click = () => $('files').click()
  const title = words().openHint
  const open = el('button.own', { type: 'button', click, title }, words().open)
  $('runs').replaceChildren(...links, open)
  const chosen = $('runs').querySelector('[aria-current]')
  $('runs').scrollLeft =
    chosen.offsetLeft - ($('runs').offsetWidth - chosen.offsetWidth) / 2
  $('compare').replaceChildren(
    el('option', { value: '' }, words().nothing),
    ...all
      .filter((run) => run !== view.run && run.unit === view.run.unit)
      .map((run) => el('option', { value: run.name }, run.label)),
  )
  $('compare').value = comparison()?.name ?? ''
}

let heights = ''

/** What sticks to top and bottom must not cover what is scrolled to. */
function measurePanel() {
  const isSticky = getComputedStyle($('panel')).position === 'sticky'
  const panel = isSticky ? $('panel').offsetHeight + 8 : 0
  const now = `--panel: ${panel}px; --player: ${$('player').offsetHeight}px`
  if (now === heights) return // to set them costs a layout of the whole page
  heights = now
  document.documentElement.style.cssText = now
}

function drawNotices() {
  $('notices').replaceChildren(
    ...notices.map(({ key, values }) => {
      const name = key === 'opened' || key === 'again' ? 'li.notice.good' : 'li.notice'
      return el(name, {}, say(words().notices[key], values))
    }),
  )
}

/* Moving through the run. */

function goTo(moment) {
  const next = clamp(moment)
  if (next === view.moment) return
  view.moment = next
  $('stage').classList.add('stepping')
  drawMoment()
  writeAddress()
  scrollToMoment(isCalm.matches ? 'auto' : 'smooth')
}

/** Into sight; a tall card only so far up that what lies before it stays in sight. */
function scrollToMoment(behavior) {
  const node = cards.at(-1)?.node
  if (!node) return
  const from = $('panel').getBoundingClientRect().bottom
  const room = $('player').getBoundingClientRect().top - Math.max(0, from)
  if (node.offsetHeight < 0.7 * room) node.scrollIntoView({ block: 'nearest', behavior })
  else {
    const wanted = Math.max(0, from) + 0.4 * room
    const top = node.getBoundingClientRect().top - wanted
    document.body.scrollBy({ top, behavior })
  }
}

function play() {
  if (view.moment === view.run.moments.length) goTo(1)
  timer = setInterval(() => {
    goTo(view.moment + 1)
    if (view.moment === view.run.moments.length) pause()
  }, PAUSE)
  drawPlay()
}

function pause() {
  clearInterval(timer)
  timer = undefined
  drawPlay()
}

function drawPlay() {
  const icon = timer ? 'pause' : 'play'
  setIcon('play', words()[icon], icon)
}

function stepTo(moment) {
  pause()
  goTo(moment)
}

function drawFold() {
  $('fold').textContent = view.openAll ? words().foldAll : words().openAll
  $('fold').setAttribute('aria-pressed', view.openAll)
}

/* What the reader does. */

$('first').addEventListener('click', () => stepTo(1))
$('back').addEventListener('click', () => stepTo(view.moment - 1))
$('play').addEventListener('click', () => (timer ? pause() : play()))
$('forward').addEventListener('click', () => stepTo(view.moment + 1))
$('last').addEventListener('click', () => stepTo(view.run.moments.length))
$('slider').addEventListener('input', () => stepTo(Number($('slider').value)))
$('jump').addEventListener('change', () => stepTo(Number($('jump').value)))
$('search').addEventListener('input', drawFound)
$('search').addEventListener('keydown', ({ key, shiftKey, isComposing }) => {
  if (key === 'Enter' && !isComposing) stepTo(nextFound(shiftKey ? -1 : 1))
  if (key === 'Escape') document.body.focus({ preventScroll: true })
})
$('fold').addEventListener('click', () => {
  view.openAll = !view.openAll
  view.run.isOpen.clear()
  drawFold()
  clearStage()
  drawStage()
  scrollToMoment('auto')
})
for (const name of ['pointerdown', 'pointermove']) {
  $('plot').addEventListener(name, (event) => {
    if (event.buttons !== 1) return
    stepTo(scale.momentAt(event.clientX - $('plot').getBoundingClientRect().left))
  })
}
addEventListener('keydown', (event) => {
  const { key, target } = event
  const isOn = (selector) => target.closest?.(selector)
  const isTaken = event.ctrlKey || event.metaKey || event.altKey || event.shiftKey
  // Where nothing has the focus, the arrows up and down, Page Down and so on scroll.
  if (document.activeElement === document.body)
    document.body.focus({ preventScroll: true })
  if (isTaken || isOn('input, select')) return
  const actions = {
    ArrowLeft: () => stepTo(view.moment - 1),
    ArrowRight: () => stepTo(view.moment + 1),
    n: () => stepTo(nextJump(1)),
    p: () => stepTo(nextJump(-1)),
    '/': () => $('search').focus(),
    ' ': () => (timer ? pause() : play()),
  }
  if (!Object.hasOwn(actions, key) || (key === ' ' && isOn('button, a, summary'))) return
  actions[key]()
  event.preventDefault()
})
$('compare').addEventListener('change', () => {
  view.behind = $('compare').value
  drawAll()
  writeAddress()
})
$('language').addEventListener('click', () => {
  view.language = words() === WORDS.zh ? 'en' : 'zh'
  drawAll()
  writeAddress()
})
addEventListener('hashchange', openAddress)

new ResizeObserver(() => drawLinks(cards)).observe($('stage'))
new ResizeObserver(() => view.run && drawPlot(comparison())).observe($('plot'))
for (const id of ['panel', 'player']) new ResizeObserver(measurePanel).observe($(id))

async function open(files) {
  const run = await openFiles(files)
  if (run) {
    showRun(run)
    writeAddress()
  }
  drawNotices()
  if (notices.length > 0) $('notices').scrollIntoView({ block: 'nearest' })
}

$('files').addEventListener('change', async () => {
  notices.length = 0
  await open([...$('files').files].map((file) => ({ file, folder: '' })))
  $('files').value = '' // so that the same file can be opened again
})
addEventListener('dragover', (event) => {
  if (!event.dataTransfer.types.includes('Files')) return
  event.preventDefault()
  $('drop').hidden = false
})
addEventListener('dragleave', ({ relatedTarget }) => {
  if (!relatedTarget) $('drop').hidden = true
})
addEventListener('drop', async (event) => {
  if (!event.dataTransfer.types.includes('Files')) return
  event.preventDefault()
  $('drop').hidden = true
  notices.length = 0
  await open(await filesOf(event.dataTransfer))
})

/* The recordings, then the moment in the address. */

const recorded = new Map()
for (const { dataset, textContent } of document.querySelectorAll('script[data-file]')) {
  const [folder, file] = dataset.file.split('/')
  recorded.set(folder, [...(recorded.get(folder) ?? []), readLane(file, textContent)])
}
for (const [name, lanes] of recorded) runs.set(name, makeRun(name, name, lanes, true))
openAddress()
