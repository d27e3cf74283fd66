// Finding a moment: calls and returns, by key and by a list, and what is searched for.

import { landmarksOf, search } from './facts.js'
import { $, el, number, say, view, words } from './view.js'

export function drawJumps() {
  const options = landmarksOf(view.run).map(({ moment, key, who }) => {
    const told = say(words().jumps[key], { m: number(moment), who })
    return el('option', { value: moment }, told)
  })
  $('jump').replaceChildren(el('option', { value: '' }, words().jump), ...options)
  $('jump').disabled = options.length === 0
}

/** The next of some moments in a direction, 1 or -1. */
const nextOf = (moments, direction) =>
  direction > 0
    ? moments.find((it) => it > view.moment)
    : moments.findLast((it) => it < view.moment)

/** The next call or return in a direction, or else the moment that is shown. */
export function nextJump(direction) {
  const moments = landmarksOf(view.run).map(({ moment }) => moment)
  return nextOf(moments, direction) ?? view.moment
}

/** The next message that holds what is searched for; after the last, the first. */
export function nextFound(direction) {
  const found = search(view.run, $('search').value)
  return nextOf(found, direction) ?? found.at(direction > 0 ? 0 : -1) ?? view.moment
}

/** Which of the messages that were found this is. */
export function drawFound() {
  const found = search(view.run, $('search').value)
  const told = { i: number(found.indexOf(view.moment) + 1), n: number(found.length) }
  const nothing = $('search').value === '' ? '' : words().notFound
  $('found').textContent = found.length > 0 ? say(words().found, told) : nothing
}
