// What is shown, in which words, and how an element is made: whatever comes from a log
// arrives as a text node.

import { lengthOf } from './lane.js'
import { ENGLISH } from './words-en.js'
import { CHINESE } from './words-zh.js'

export const WORDS = { en: ENGLISH, zh: CHINESE }
export const runs = new Map()
/** `behind` and `language` are there when somebody has chosen. */
export const view = { run: undefined, moment: 0, openAll: false }

export const words = () =>
  WORDS[view.language ?? (navigator.language.startsWith('zh') ? 'zh' : 'en')]
/** A sentence with its {names} filled in. */
export const say = (sentence, values) =>
  sentence.replace(/\{(\w+)\}/g, (_, name) => values[name])
/** The same in pieces, with every value in bold. */
export const tellBold = (sentence, values = {}) =>
  sentence
    .split(/\{(\w+)\}/)
    .map((piece, i) => (i % 2 === 1 ? el('b', {}, String(values[piece])) : piece))
const format = new Intl.NumberFormat('en-US')
export const number = (value) => format.format(value)
export const sized = (value, unit = view.run.unit) =>
  say(words()[unit], { n: number(value) })
export const plural = ([one, many], n) => say(n === 1 ? one : many, { n: number(n) })
export const addressOf = ({ name }, moment) =>
  `#${encodeURIComponent(name)}${moment === undefined ? '' : `/${moment}`}`

/** An element of `tag.class.class`, attributes, children; `lane` gives its colour. */
export const el = (name, attributes, ...children) =>
  build((tag) => document.createElement(tag), name, attributes, children)
export const svg = (name, attributes, ...children) =>
  build(
    (tag) => document.createElementNS('http://www.w3.org/2000/svg', tag),
    name,
    attributes,
    children,
  )

function build(create, name, { lane, click, ...attributes }, children) {
  const [tag, ...classes] = name.split('.')
  const node = create(tag)
  if (classes.length > 0) node.setAttribute('class', classes.join(' '))
  for (const [key, value] of Object.entries(attributes)) {
    if (value !== undefined) node.setAttribute(key, value)
  }
  if (lane) node.style.setProperty('--lane', lane.colour)
  if (click) node.addEventListener('click', click)
  const nodes = children.flat(9)
  node.append(...nodes.map((it) => (typeof it === 'string' ? visible(it) : it)))
  return node
}

export const $ = (id) => document.getElementById(id)

/** What would steer the text around it becomes something to look at. */
export const visible = (text) =>
  text.replace(/[^\P{Cc}\n\t]|[\u202a-\u202e\u2066-\u2069]/gu, (character) => {
    const code = character.charCodeAt(0)
    return code < 32 ? String.fromCharCode(0x2400 + code) : '\ufffd'
  })

export const text = (value) => longText('div.text', value, 9, 900)
export const code = (value) => longText('pre.code', value, 6, 480)

/** A text, folded when it has more lines or characters than that. */
function longText(name, value, lines, characters) {
  const all = value.replace(/\r\n/g, '\n').replace(/\n+$/, '')
  let end = -1
  for (let i = 0; i < lines && end < all.length; i++) {
    end = all.indexOf('\n', end + 1)
    if (end < 0) end = all.length
  }
  const short = all.slice(0, Math.min(end, characters)).replace(/[\ud800-\udbff]$/, '')
  if (all.length - short.length < 60) return el(name, {}, all || words().empty)
  const box = el(name, {})
  const size = { lines: number(all.split('\n').length), n: number(lengthOf(value)) }
  const fold = (isFolded) => {
    box.classList.toggle('clipped', isFolded)
    box.textContent = visible(isFolded ? short : all)
    button.textContent = say(isFolded ? words().more : words().less, size)
    button.setAttribute('aria-expanded', !isFolded)
  }
  const click = () => fold(!box.classList.contains('clipped'))
  const button = el('button.more', { type: 'button', click })
  fold(true)
  return [box, button]
}

export const ICONS = {
  first: 'M2 2h2.5v12H2zM14 2v12L5.5 8z',
  back: 'M11 2v12L3.5 8z',
  play: 'M4 2v12l9-6z',
  pause: 'M3 2h3.5v12H3zM9.5 2H13v12H9.5z',
  forward: 'M5 2v12l7.5-6z',
  last: 'M11.5 2H14v12h-2.5zM2 2v12l8.5-6z',
}

export function setIcon(id, label, icon = id) {
  const path = svg('path', { d: ICONS[icon] })
  const drawing = svg('svg.icon', { viewBox: '0 0 16 16', 'aria-hidden': 'true' }, path)
  $(id).replaceChildren(drawing)
  $(id).setAttribute('aria-label', label)
  $(id).title = label
}
