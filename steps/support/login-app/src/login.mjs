import { openSession } from './sessions.mjs'
import { findUser, passwordMatches } from './users.mjs'

/** Returns a new session, or null when name and password do not fit. */
export function login(name, password, now = Date.now()) {
  const user = findUser(name)
  if (!user || !passwordMatches(user, password)) return null
  return openSession(user.name, now)
}
