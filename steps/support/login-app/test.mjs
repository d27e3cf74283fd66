import assert from 'node:assert/strict'
import { SESSION_MINUTES } from './src/config.mjs'
import { login } from './src/login.mjs'
import { findSession } from './src/sessions.mjs'
import { addUser } from './src/users.mjs'

addUser('ada', 'correct horse')

const checks = {
  'the right password opens a session'() {
    assert.equal(login('ada', 'correct horse')?.name, 'ada', 'no session')
  },
  'a wrong password opens none'() {
    assert.equal(login('ada', 'wrong horse'), null, 'a session was opened')
  },
  'an unknown name opens none'() {
    assert.equal(login('eve', 'correct horse'), null, 'a session was opened')
  },
  'a session ends by itself'() {
    const session = login('ada', 'correct horse', 0)
    assert(session, 'no session')
    assert.equal(
      findSession(session.id, SESSION_MINUTES * 60_000),
      undefined,
      'it is still open',
    )
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
