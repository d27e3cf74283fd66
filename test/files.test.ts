/** read_file, write_file and edit_file: what they do and refuse. */
import assert from 'node:assert/strict'
import { execFileSync } from 'node:child_process'
import nodeFs, * as fs from 'node:fs'
import { syncBuiltinESMExports } from 'node:module'
import { tmpdir } from 'node:os'
import { join, win32 } from 'node:path'
import { after, beforeEach, describe, test } from 'node:test'
import * as files from '../steps/support/tools/files.ts'

const posix = { skip: process.platform === 'win32' && 'needs a POSIX file system' }
const base = fs.realpathSync(fs.mkdtempSync(join(tmpdir(), 'files-test-')))
after(() => fs.rmSync(base, { recursive: true, force: true }))

let workdir: string
let outside: string
let cases = 0
beforeEach(() => {
  workdir = join(base, `${++cases}`, 'work')
  outside = join(base, `${cases}`, 'work-2')
  fs.mkdirSync(workdir, { recursive: true })
  fs.mkdirSync(outside)
  fs.writeFileSync(join(outside, 'secret.txt'), 'secret')
})

const read = (path: string, limit?: number) =>
  files.runReadFile({ path, limit }, { workdir })
const write = (path: string, content: string) =>
  files.runWriteFile({ path, content }, { workdir })
const edit = (path: string, old_text: string, new_text: string) =>
  files.runEditFile({ path, old_text, new_text }, { workdir })
const put = (name: string, content: string | Buffer) =>
  fs.writeFileSync(join(workdir, name), content)
const get = (name: string) => fs.readFileSync(join(workdir, name), 'utf8')
const link = (target: string, name: string) => fs.symlinkSync(target, join(workdir, name))
/** All three tools refuse `path` with a message like this. */
const allRefuse = (path: string, message: RegExp) => {
  assert.throws(() => read(path), { message })
  assert.throws(() => write(path, 'x'), { message })
  assert.throws(() => edit(path, 'secret', 'x'), { message })
}
const OUTSIDE = /^.* is outside: paths stay inside the working directory$/

describe('paths', () => {
  test('relative and absolute ones inside the working directory', () => {
    put('a.txt', 'a')
    fs.mkdirSync(join(workdir, '..b'))
    assert.equal(read('./x/../a.txt'), 'a')
    assert.equal(read(join(workdir, 'a.txt')), 'a')
    assert.equal(write('..b/..c', 'x'), 'Wrote 1 byte to ..b/..c')
    assert.equal(get('..b/..c'), 'x')
  })

  test('nothing outside, nor by symlink: file, folder, chain, dangling', () => {
    const paths = ['../work-2/secret.txt', join(outside, 'secret.txt'), '..', 'a/../..']
    if (!posix.skip) {
      link(join(outside, 'secret.txt'), 'file')
      link(outside, 'folder')
      link('file', 'chain')
      link('../work-2/new.txt', 'dangling')
      link('dangling', 'dangling-chain')
      paths.push('file', 'folder', 'folder/secret.txt', 'folder/new/a', 'chain')
      for (const path of ['dangling', 'dangling-chain', 'dangling/a']) {
        assert.throws(() => read(path))
        assert.throws(() => write(path, 'x'))
      }
    }
    for (const path of paths) allRefuse(path, OUTSIDE)
    assert.deepEqual(fs.readdirSync(outside), ['secret.txt'])
    assert.equal(fs.readFileSync(join(outside, 'secret.txt'), 'utf8'), 'secret')
  })

  test('links that stay inside are followed', posix, () => {
    fs.mkdirSync(join(workdir, 'src'))
    put('src/a.txt', 'a')
    link('src', 'folder')
    link('src/a.txt', 'file')
    assert.equal(read('folder/a.txt'), 'a')
    write('file', 'b')
    assert.equal(edit('file', 'b', 'c'), 'Edited file, line 1')
    write('folder/new/b.txt', 'd')
    assert.deepEqual([get('src/a.txt'), get('src/new/b.txt')], ['c', 'd'])
    assert.ok(fs.lstatSync(join(workdir, 'file')).isSymbolicLink())
  })

  test('the working directory may be reached through a link', posix, () => {
    put('a.txt', 'a')
    const paths = ['a.txt', join(workdir, 'a.txt'), join(`${workdir}-link`, 'a.txt')]
    fs.symlinkSync(workdir, `${workdir}-link`)
    workdir = `${workdir}-link`
    for (const path of paths) assert.equal(read(path), 'a')
    allRefuse('../work-2/secret.txt', OUTSIDE)
  })

  test('what names no file is refused by name', posix, () => {
    fs.mkdirSync(join(workdir, 'src'))
    execFileSync('mkfifo', [join(workdir, 'pipe')])
    put('a.txt', 'a')
    link('round', 'round')
    const refused: [path: string, message: RegExp][] = [
      ['', /^A blank path is a folder or device, no file: use bash$/],
      ['src', /^src is a folder or device, no file: use bash$/],
      ['src/', /^src\/ is a folder/],
      ['new/', /^new\/ is a folder/],
      ['pipe', /^pipe is a folder or device/],
      ['a.txt/b', /^Cannot (read|write) a\.txt\/b: ENOTDIR: not a directory$/],
      ['round/a', /^Cannot (read|write) round\/a: ELOOP: /],
      ['n'.repeat(256), /^Cannot (read|write) n+: ENAMETOOLONG: name too long$/],
    ]
    for (const [path, message] of refused) allRefuse(path, message)
  })

  test('a working directory that is gone is named', () => {
    fs.rmSync(workdir, { recursive: true })
    allRefuse('a.txt', /^The working directory .*work is gone$/)
  })

  // biome-ignore format: a table
  const windows: [path: string, isInside: boolean][] = [
    ['a', true], ['a/b', true], ['..a', true], ['b\\..\\a', true],
    ['C:\\x\\work\\a', true], ['c:/X/Work/a', true],
    ['..', false], ['..\\work-2\\a', false], ['C:\\x\\work-2', false],
    ['D:\\a', false], ['D:a', false], ['\\a', false], ['/a', false],
    ['\\\\server\\share\\a', false], ['//server/share/a', false], ['\\\\?\\D:\\a', false],
  ]
  test('drive letters and UNC paths of Windows', () => {
    for (const [path, wanted] of windows) {
      const inner = win32.resolve('C:\\x\\work', path)
      assert.equal(files.isInside('C:\\x\\work', inner, win32), wanted, path)
    }
  })
})

describe('read_file', () => {
  // biome-ignore format: a table
  const shown: [name: string, content: string, limit: number | undefined, text: string][] = [
    ['the whole file, as it is', 'one\r\ntwo\nthree', undefined, 'one\r\ntwo\nthree'],
    ['nothing in it', '', undefined, ''],
    ['the first lines', '1\n2\n3\n4\n5\n', 2, '1\n2\n[6 bytes left out]'],
    ['all lines', '1\n2\n3\n', 3, '1\n2\n3\n'],
    ['more than there are', '1\n2\n3', 100, '1\n2\n3'],
    ['blank lines count', '1\n\n\n', 1, '1\n[2 bytes left out]'],
    ['with CRLF', '1\r\n2\r\n3', 2, '1\r\n2\r\n[1 byte left out]'],
    ['without its BOM', '\uFEFFone\ntwo', undefined, 'one\ntwo'],
    ['a BOM does not count', '\uFEFFone\ntwo', 1, 'one\n[3 bytes left out]'],
    ['as much as may be', 'b'.repeat(50_000), undefined, 'b'.repeat(50_000)],
    ['one line, cut', 'b'.repeat(50_001), undefined, `${'b'.repeat(50_000)}\n[1 byte left out]`],
    ['cut between characters', `${'a'.repeat(49_999)}😀é\n2\n3`, undefined,
      `${'a'.repeat(49_999)}\n[10 bytes left out]`],
    ['cut between lines', 'a\n'.repeat(25_001), undefined,
      `${'a\n'.repeat(25_000)}[2 bytes left out]`],
  ]
  for (const [name, content, limit, text] of shown) {
    test(name, () => {
      put('a.txt', content)
      assert.equal(read('a.txt', limit), text)
    })
  }

  test('a large file is cut like any other', () => {
    put('a.txt', Buffer.alloc(6_000_000, 'é\n'))
    const text = read('a.txt')
    assert.equal(text.slice(50_000), '[5925000 bytes left out]')
  })

  test('what is missing is named', () => {
    const message = 'Cannot read no/c.txt: ENOENT: no such file or directory'
    for (const refused of [() => read('no/c.txt'), () => edit('no/c.txt', 'a', 'b')])
      assert.throws(refused, { message })
  })

  const binaries: [name: string, content: Buffer][] = [
    ['binary', Buffer.from([1, 2, 0, 3])],
    ['UTF-16', Buffer.from('\uFEFFhi', 'utf16le')],
    ['Latin-1', Buffer.from('é', 'latin1')],
    ['half a surrogate pair', Buffer.from([0xed, 0xa0, 0xbd])],
  ]
  for (const [name, content] of binaries) {
    test(`what is no UTF-8 text is refused by name: ${name}`, () => {
      put('a', content)
      const message = 'a is binary, UTF-16 or other text than UTF-8: use bash'
      assert.throws(() => read('a'), { message })
      assert.throws(() => edit('a', 'a', 'b'), { message })
      assert.deepEqual(fs.readFileSync(join(workdir, 'a')), content)
    })
  }
})

describe('write_file', () => {
  test('counts bytes, makes folders, leaves nothing else behind', () => {
    assert.equal(write('a/b/c.txt', 'é\n'), 'Wrote 3 bytes to a/b/c.txt')
    assert.equal(get('a/b/c.txt'), 'é\n')
    assert.equal(write('a/b/c.txt', ''), 'Wrote 0 bytes to a/b/c.txt')
    assert.equal(get('a/b/c.txt'), '')
    write(`a/${'n'.repeat(255)}`, 'x')
    assert.deepEqual(fs.readdirSync(join(workdir, 'a')), ['b', 'n'.repeat(255)])
    assert.deepEqual(fs.readdirSync(join(workdir, 'a/b')), ['c.txt'])
  })

  test('replaces a file in one step, and keeps its mode', posix, () => {
    put('run.sh', 'old')
    fs.chmodSync(join(workdir, 'run.sh'), 0o751)
    const reader = fs.openSync(join(workdir, 'run.sh'), 'r')
    write('run.sh', 'echo')
    edit('run.sh', 'echo', 'echo a')
    assert.equal(fs.readFileSync(reader, 'utf8'), 'old')
    assert.equal(fs.statSync(join(workdir, 'run.sh')).mode & 0o7777, 0o751)
    fs.closeSync(reader)
  })

  test('what may not be written stays as it is', posix, (t) => {
    fs.mkdirSync(join(workdir, 'locked'))
    put('locked/a.txt', 'old')
    put('b.txt', 'old')
    for (const folder of [base, join(workdir, '..'), workdir]) fs.chmodSync(folder, 0o777)
    fs.chmodSync(join(workdir, 'locked'), 0o555)
    fs.chmodSync(join(workdir, 'b.txt'), 0o444)
    const root = process.geteuid?.() === 0
    // Nothing is forbidden to root, so it is tried as somebody else.
    if (root) process.seteuid?.(65534)
    t.after(() => root && process.seteuid?.(0))
    if (!fs.existsSync(workdir)) return t.skip('the temporary folder is private')
    for (const path of ['b.txt', 'locked/a.txt', 'locked/new/a.txt']) {
      const message = `Cannot write ${path}: EACCES: permission denied`
      assert.throws(() => write(path, 'new'), { message })
    }
    assert.deepEqual(fs.readdirSync(join(workdir, 'locked')), ['a.txt'])
    assert.deepEqual([get('b.txt'), get('locked/a.txt')], ['old', 'old'])
  })

  test('a write that fails half-way, as on a full disk, changes nothing', (t) => {
    put('a.txt', 'old')
    const writeFileSync = fs.writeFileSync
    const mocked = t.mock.method(nodeFs, 'writeFileSync', (path: string) => {
      writeFileSync(path, 'ne')
      const message = 'ENOSPC: no space left on device, write'
      throw Object.assign(new Error(message), { code: 'ENOSPC' })
    })
    syncBuiltinESMExports()
    const message = 'Cannot write a.txt: ENOSPC: no space left on device'
    assert.throws(() => write('a.txt', 'new'), { message })
    mocked.mock.restore()
    syncBuiltinESMExports()
    assert.equal(get('a.txt'), 'old')
    assert.deepEqual(fs.readdirSync(workdir), ['a.txt'])
  })
})

describe('edit_file', () => {
  // biome-ignore format: a table
  const edits: [name: string, before: string, old: string, fresh: string, after: string][] = [
    ['one occurrence', 'one\ntwo\nthree\n', 'two\nth', '2\nTH', 'one\n2\nTHree\n'],
    ['less', 'one\ntwo\n', 'two\n', '', 'one\n'],
    ['both texts literally', 'a.c abc', 'a.c', "$& $1 $` $' $$ \\n $<n>", "$& $1 $` $' $$ \\n $<n> abc"],
    ['a pattern as text', '(x|y)* [z] \\d {1} ^$ + ?', '(x|y)* [z] \\d {1} ^$ +', '-', '- ?'],
    ['CRLF by LF', 'a\r\nb\r\nc\r\n', 'a\nb', '1\n2\n3', '1\r\n2\r\n3\r\nc\r\n'],
    ['CRLF by CRLF', 'a\r\nb\r\nc\r\n', 'a\r\nb', '1\r\n2\n3', '1\r\n2\r\n3\r\nc\r\n'],
    ['a line end of CRLF', 'a\r\nb\r\n', '\nb', ' b', 'a b\r\n'],
    ['behind a BOM', '\uFEFFa\r\nb\r\n', 'a\n', '1\n', '\uFEFF1\r\nb\r\n'],
    ['the rest as it is', 'a\nb\r\nc\n', 'a', 'd', 'd\nb\r\nc\n'],
  ]
  for (const [name, before, old, fresh, after] of edits) {
    test(`replaces ${name}`, () => {
      put('a.txt', before)
      edit('a.txt', old, fresh)
      assert.equal(get('a.txt'), after)
    })
  }

  const NONE = 'old_text is not in a.txt: copy it exactly as read_file shows it'
  // biome-ignore format: a table
  const refused: [name: string, before: string, old: string, fresh: string, message: string][] = [
    ['none', 'if (a) {\n\treturn\n}\n', 'if (a) {\n  return', 'x', NONE],
    ['several', 'x\ny\nx x\n', 'x', 'z',
      'old_text is 3 times in a.txt, on line 1, 3: add lines around it'],
    ['two that overlap', 'aaa', 'aa', 'z',
      'old_text is 2 times in a.txt, on line 1: add lines around it'],
    ['very many', 'x\n'.repeat(500_000), 'x', 'z', 'old_text is 500000 times in a.txt, on ' +
      'line 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, …: add lines around it'],
    ['nothing to look for', 'a', '', 'x', 'old_text is empty: it must name what to replace'],
    ['nothing to change', 'a\r\nb', 'a\r\nb', 'a\nb',
      'old_text equals new_text: nothing would change'],
  ]
  for (const [name, before, old, fresh, message] of refused) {
    test(`refuses ${name}`, () => {
      put('a.txt', before)
      assert.throws(() => edit('a.txt', old, fresh), { message })
      assert.equal(get('a.txt'), before)
    })
  }
})
