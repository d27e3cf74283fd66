import { createHash, timingSafeEqual } from 'node:crypto'
import { PASSWORD_LENGTH } from './config.mjs'

const users = new Map()

const hash = (name, password) =>
  createHash('sha256').update(`${name}:${password}`).digest()

/** Adds a user; a password that is too short is an error. */
export function addUser(name, password) {
  if (password.length < PASSWORD_LENGTH) throw new Error('password too short')
  users.set(name, { name, hash: hash(name, password) })
}

export function findUser(name) {
  return users.get(name)
}

export function passwordMatches(user, password) {
  return timingSafeEqual(user.hash, hash(user.name, password))
}
