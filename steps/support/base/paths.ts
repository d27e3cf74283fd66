/** What a lane's file holds instead of this machine's paths, and reading that back. */
import { realpathSync } from 'node:fs'
import { basename, relative } from 'node:path'
import { pathToFileURL } from 'node:url'
import { mapStrings } from './lane-file.ts'
import { redact } from './secrets.ts'

/**
 * The directories of a run's lanes. In a lane's file its own is `<workdir>`, and another
 * lane's a path relative to the run's. A `<workdir>` that somebody said gets a backslash.
 */
export class Paths {
  readonly #run: string
  readonly #spellings = new Map<string, string>() // of a directory, and the directory
  #pattern = /<\\*workdir>/g

  constructor(workdir: string) {
    this.#run = this.#add(workdir)
  }

  #add(path: string): string {
    const known = this.#spellings.get(path)
    if (known) return known
    const real = realpathSync(path)
    for (const name of [path, real]) {
      const spellings = [name, name.replaceAll('\\', '/'), name.replaceAll('\\', '\\\\')]
      spellings.push(pathToFileURL(name).href)
      for (const spelling of spellings) this.#spellings.set(spelling, real)
    }
    const longestFirst = [...this.#spellings.keys()].sort((a, b) => b.length - a.length)
    const names = longestFirst.map((name) => name.replace(/[\\^$.*+?()[\]{}|]/g, '\\$&'))
    // A sibling whose name only begins the same is another folder.
    const pattern = `<\\\\*workdir>|(?:${names.join('|')})(?![\\w-]|\\.\\w)`
    this.#pattern = new RegExp(pattern, 'g')
    return real
  }

  /**
   * A value as the file of a lane that works in `workdir` holds it: well formed, no
   * secrets, no paths of this machine.
   */
  clean<T>(workdir: string, value: T): T {
    const own = this.#add(workdir)
    const fold = (found: string) => {
      const path = this.#spellings.get(found)
      if (path === undefined) return found.replace('<', '<\\')
      if (path === own) return '<workdir>'
      return relative(this.#run, path).replaceAll('\\', '/') || `../${basename(path)}`
    }
    const folded = (text: string) => text.toWellFormed().replace(this.#pattern, fold)
    return mapStrings(value, (text) => redact(folded(text)))
  }
}

/** A value from the file of a lane that works in `workdir`, as it was said. */
export function unfold<T>(value: T, workdir: string): T {
  const said = (found: string, slashes: string) =>
    slashes ? found.replace('\\', '') : workdir
  return mapStrings(value, (text) => text.replace(/<(\\*)workdir>/g, said))
}

/** A path as seen from where the reader is. */
export const shorten = (path: string) => relative('', path).replaceAll('\\', '/') || '.'
