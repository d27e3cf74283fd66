import { SESSION_MINUTES } from './config.mjs'

const sessions = new Map()
let count = 0

/** Opens a session for a user; times are in milliseconds. */
export function openSession(name, now) {
  const session = {
    id: `session-${++count}`,
    name,
    expires: now + SESSION_MINUTES * 60_000,
  }
  sessions.set(session.id, session)
  return session
}

/** The session with this id, unless it has expired. */
export function findSession(id, now) {
  const session = sessions.get(id)
  return session && now < session.expires ? session : undefined
}
