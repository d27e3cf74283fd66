import assert from 'node:assert/strict'
import { SESSION_MINUTES } from './src/config.mjs'
import { login } from './src/login.mjs'
import { findSession } from './src/sessions.mjs'
import { addUser } from './src/users.mjs'

addUser('ada', 'correct horse')

const checks = {
  'the right password opens a session'() {
    assert(login('ada', 'correct horse')?.name === 'ada', 'no session')
  },
  'a wrong password opens none'() {
    assert(!login('ada', 'wrong horse'), 'a session was opened')
  },
  'an unknown name opens none'() {
    assert(!login('eve', 'correct horse'), 'a session was opened')
  },
  'a session ends by itself'() {
    const session = login('ada', 'correct horse', 0)
    assert(session, 'no session')
    const later = SESSION_MINUTES * 60_000
    assert(!findSession(session.id, later), 'it is still open')
  },
}

for (const [name, check] of Object.entries(checks)) {
  try {
    check()
    console.log(`ok - ${name}`)
  } catch (error) {
    console.log(`FAILED - ${name}: ${error.message}`)
    process.exitCode = 1
  }
}
