/** The bodies of read_file, write_file and edit_file: what they do and refuse. */
import assert from 'node:assert/strict'
import { execFileSync, spawnSync } from 'node:child_process'
import * as fs from 'node:fs'
import { createServer } from 'node:net'
import { tmpdir } from 'node:os'
import { join, win32 } from 'node:path'
import { after, beforeEach, describe, test } from 'node:test'
import { editFile, isInside, readFile, writeFile } from '../steps/support/tools/files.ts'

const posix = { skip: process.platform === 'win32' && 'needs a POSIX file system' }
const base = fs.realpathSync(fs.mkdtempSync(join(tmpdir(), 'workspace-test-')))
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

const read = (path: string, limit?: number) => readFile({ path, limit }, { workdir })
const write = (path: string, content: string) => writeFile({ path, content }, { workdir })
const edit = (path: string, old_text: string, new_text: string) =>
  editFile({ path, old_text, new_text }, { workdir })
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
const OUTSIDE = /paths stay inside the working directory/

describe('paths', () => {
  test('relative and absolute ones inside the working directory', () => {
    put('a.txt', 'a')
    fs.mkdirSync(join(workdir, '..b'))
    assert.equal(read('./x/../a.txt'), 'a')
    assert.equal(read(join(workdir, 'a.txt')), 'a')
    assert.equal(write('..b/..c', 'x'), 'Wrote 1 byte to ..b/..c')
    assert.equal(get('..b/..c'), 'x')
  })

  test('nothing outside, and the refusal names the path', () => {
    for (const path of [
      '../work-2/secret.txt',
      join(outside, 'secret.txt'),
      '..',
      'a/../..',
    ]) {
      allRefuse(path, OUTSIDE)
      assert.throws(
        () => read(path),
        (error: Error) => error.message.startsWith(path),
      )
    }
    assert.equal(fs.readFileSync(join(outside, 'secret.txt'), 'utf8'), 'secret')
  })

  test('no symlink leads out: file, folder, chain, dangling', posix, () => {
    link(join(outside, 'secret.txt'), 'file')
    link(outside, 'folder')
    link('file', 'chain')
    link('../work-2/new.txt', 'dangling')
    link('dangling', 'dangling-chain')
    link('folder/../new.txt', 'up')
    for (const path of ['file', 'folder/secret.txt', 'folder/new/a', 'chain', 'folder']) {
      allRefuse(path, OUTSIDE)
    }
    for (const path of ['dangling', 'dangling-chain', 'up']) allRefuse(path, OUTSIDE)
    assert.deepEqual(fs.readdirSync(outside), ['secret.txt'])
    assert.deepEqual(fs.readdirSync(join(outside, '..')).sort(), ['work', 'work-2'])
    assert.equal(fs.readFileSync(join(outside, 'secret.txt'), 'utf8'), 'secret')
  })

  test('links in circles end with an error', posix, () => {
    link('b', 'a')
    link('a', 'b')
    link('nowhere/../c', 'c')
    for (const path of ['a', 'a/x', 'c'])
      allRefuse(path, /Cannot (read|write) (a|a\/x|c): E/)
  })

  test(
    'links that stay inside are followed, to where there is no file yet too',
    posix,
    () => {
      fs.mkdirSync(join(workdir, 'src'))
      put('src/a.txt', 'a')
      link('src', 'folder')
      link('src/a.txt', 'file')
      link('src/new.txt', 'new')
      assert.equal(read('folder/a.txt'), 'a')
      write('file', 'b')
      assert.equal(get('src/a.txt'), 'b')
      assert.equal(edit('file', 'b', 'c'), 'Edited file, line 1')
      write('new', 'n')
      assert.equal(get('src/new.txt'), 'n')
      for (const name of ['folder', 'file', 'new']) {
        assert.ok(fs.lstatSync(join(workdir, name)).isSymbolicLink(), name)
      }
    },
  )

  test('the working directory may be reached through a link', posix, () => {
    const alias = join(base, `${cases}`, 'alias')
    fs.symlinkSync(workdir, alias)
    put('a.txt', 'a')
    for (const path of ['a.txt', join(alias, 'a.txt'), join(workdir, 'a.txt')]) {
      assert.equal(readFile({ path }, { workdir: alias }), 'a')
    }
    const path = '../work-2/secret.txt'
    assert.throws(() => readFile({ path }, { workdir: alias }), { message: OUTSIDE })
  })

  test('a working directory that is gone is named', () => {
    fs.rmSync(workdir, { recursive: true })
    allRefuse('a.txt', /^The working directory .*work is gone$/)
  })

  test('an empty path and one with a NUL', () => {
    for (const path of ['', ' ', 'a\0b']) allRefuse(path, /empty or has a NUL/)
  })

  test('drive letters and UNC paths of Windows', () => {
    const inside = (path: string) =>
      isInside('C:\\x\\work', win32.resolve('C:\\x\\work', path), win32)
    for (const path of ['a', 'a/b', 'C:\\x\\work\\a', 'c:/X/Work/a', '..a', 'b\\..\\a']) {
      assert.equal(inside(path), true, path)
    }
    const others = ['D:\\a', 'D:a', '\\a', '/a', '..\\work-2\\a', 'C:\\x\\work-2', '..']
    for (const path of [
      ...others,
      '\\\\server\\share\\a',
      '//server/share/a',
      '\\\\?\\D:\\a',
    ]) {
      assert.equal(inside(path), false, path)
    }
  })
})

describe('read_file', () => {
  test('the whole file, as it is', () => {
    put('a.txt', 'one\r\ntwo\nthree')
    assert.equal(read('a.txt'), 'one\r\ntwo\nthree')
  })

  test('the first lines, and how many are left out', () => {
    put('a.txt', '1\n2\n3\n4\n5\n')
    assert.equal(read('a.txt', 2), '1\n2\n[left out: 3 lines, 6 bytes]')
    assert.equal(read('a.txt', 4), '1\n2\n3\n4\n[left out: 1 line, 2 bytes]')
    assert.equal(read('a.txt', 5), '1\n2\n3\n4\n5\n')
    assert.equal(read('a.txt', 100), '1\n2\n3\n4\n5\n')
    put('b.txt', '1\r\n2\r\n3')
    assert.equal(read('b.txt', 2), '1\r\n2\r\n[left out: 1 line, 1 byte]')
    assert.equal(read('b.txt', 3), '1\r\n2\r\n3')
  })

  test('a long file is cut, between characters', () => {
    put('a.txt', `${'a'.repeat(49_999)}😀é\nend`)
    assert.equal(read('a.txt'), `${'a'.repeat(49_999)}\n[left out: 2 lines, 10 bytes]`)
    assert.equal(read('a.txt', 1), read('a.txt'))
    put('b.txt', 'b'.repeat(50_000))
    assert.equal(read('b.txt'), 'b'.repeat(50_000))
  })

  test('a file of 10 GB is not read whole', posix, () => {
    put('big.txt', Buffer.alloc(10_100_000, 'é\n')) // cut inside a character, too
    fs.truncateSync(join(workdir, 'big.txt'), 10_000_000_000)
    const before = process.memoryUsage().rss
    const text = read('big.txt')
    assert.equal(text.slice(0, 50_000), 'é\n'.repeat(25_000))
    assert.equal(text.slice(50_000), '[left out: 9999925000 bytes]')
    assert.ok(process.memoryUsage().rss - before < 200_000_000)
    assert.throws(
      () => edit('big.txt', 'é', 'e'),
      /big.txt has 10000000000 bytes: .* bash/,
    )
  })

  test('an empty file and one with only white space are told apart from nothing', () => {
    put('a.txt', '')
    put('bom.txt', '\uFEFF')
    put('b.txt', '\n \n')
    assert.equal(read('a.txt'), '(empty file)')
    assert.equal(read('bom.txt'), '(empty file)')
    assert.equal(read('b.txt'), '(only white space, 3 bytes)')
  })

  test('a BOM is left out, and counted right', () => {
    put('a.txt', '\uFEFFone\ntwo')
    assert.equal(read('a.txt'), 'one\ntwo')
    assert.equal(read('a.txt', 1), 'one\n[left out: 1 line, 3 bytes]')
  })

  test('what is missing is named, with what there is', () => {
    put('b.txt', '')
    put('a.txt', '')
    const message = 'c.txt does not exist. Its folder has: a.txt, b.txt'
    assert.throws(() => read('c.txt'), { message })
    assert.throws(() => edit('c.txt', 'a', 'b'), { message })
    assert.throws(() => read('no/c.txt'), {
      message: 'no/c.txt does not exist. Nor does its folder.',
    })
    for (let i = 0; i < 30; i++) put(`file-${i}`, '')
    assert.throws(() => read('c.txt'), /, …$/)
  })

  test('a folder, a file that is used as one', () => {
    fs.mkdirSync(join(workdir, 'src'))
    put('a.txt', '')
    for (const path of ['src', '.', 'src/']) {
      assert.throws(() => read(path), {
        message: `${path} is a folder, no file: list it with bash`,
      })
      assert.throws(() => edit(path, 'a', 'b'), /is a folder/)
    }
    assert.throws(
      () => read('a.txt/b'),
      /^Error: (Cannot read )?a.txt\/b.*(a file|not exist)/,
    )
  })

  test('a pipe, a socket and a device do not hang it', posix, async () => {
    execFileSync('mkfifo', [join(workdir, 'pipe')])
    const server = createServer().listen(join(workdir, 'socket'))
    await new Promise((done) => server.once('listening', done))
    for (const path of ['pipe', 'socket']) allRefuse(path, /is a pipe, socket or device/)
    server.close()
    const device = () => readFile({ path: 'null' }, { workdir: '/dev' })
    assert.throws(device, /null is a pipe, socket or device/)
  })

  test('what is no UTF-8 text is refused by name', () => {
    put('binary', Buffer.from([1, 2, 0, 3]))
    put('late', `${'a'.repeat(200_000)}\0`)
    put('le.txt', Buffer.from('\uFEFFhi', 'utf16le'))
    put('be.txt', Buffer.from('\uFEFFhi', 'utf16le').swap16())
    put('latin1.txt', Buffer.from('é', 'latin1'))
    put('cut.txt', Buffer.from('é').subarray(0, 1))
    const refused = {
      binary: /binary/,
      late: /binary/,
      'le.txt': /UTF-16/,
      'be.txt': /UTF-16/,
    }
    const all = {
      ...refused,
      'latin1.txt': /not valid UTF-8/,
      'cut.txt': /not valid UTF-8/,
    }
    for (const [path, reason] of Object.entries(all)) {
      assert.throws(() => read(path), reason)
      assert.throws(
        () => read(path),
        (error: Error) => error.message.startsWith(path),
      )
      assert.throws(() => edit(path, 'a', 'b'), reason)
    }
  })
})

describe('write_file', () => {
  test('counts bytes, makes folders, leaves nothing else behind', () => {
    assert.equal(write('a/b/c.txt', 'é\n'), 'Wrote 3 bytes to a/b/c.txt')
    assert.equal(get('a/b/c.txt'), 'é\n')
    assert.equal(write('a/b/c.txt', ''), 'Wrote 0 bytes to a/b/c.txt')
    assert.equal(get('a/b/c.txt'), '')
    assert.deepEqual(fs.readdirSync(join(workdir, 'a/b')), ['c.txt'])
  })

  test('a name as long as names may be', () => {
    const name = 'n'.repeat(255)
    write(name, 'x')
    assert.equal(get(name), 'x')
    assert.throws(() => write(`${name}n`, 'x'), /^Error: Cannot write n+: ENAMETOOLONG/)
  })

  test('the mode stays', posix, () => {
    put('run.sh', '')
    fs.chmodSync(join(workdir, 'run.sh'), 0o751)
    write('run.sh', 'echo')
    edit('run.sh', 'echo', 'echo a')
    assert.equal(fs.statSync(join(workdir, 'run.sh')).mode & 0o7777, 0o751)
  })

  test('the file is replaced in one step', posix, () => {
    put('a.txt', 'old')
    const reader = fs.openSync(join(workdir, 'a.txt'), 'r')
    write('a.txt', 'new')
    assert.equal(fs.readFileSync(reader, 'utf8'), 'old')
    fs.closeSync(reader)
  })

  test('a folder, and a file where a folder should be', () => {
    fs.mkdirSync(join(workdir, 'src'))
    put('a.txt', 'a')
    for (const path of ['src', '.']) assert.throws(() => write(path, 'x'), /is a folder/)
    for (const path of ['src/', 'new/'])
      assert.throws(() => write(path, 'x'), /names a folder/)
    for (const path of ['a.txt/b', 'a.txt/b/c']) {
      const message = `Cannot write ${path}: a part of it is a file, no folder`
      assert.throws(() => write(path, 'x'), { message })
    }
    assert.deepEqual(fs.readdirSync(workdir).sort(), ['a.txt', 'src'])
  })

  test('what may not be written stays as it is', posix, (t) => {
    fs.mkdirSync(join(workdir, 'locked'))
    for (const name of ['locked/a.txt', 'b.txt']) put(name, 'old')
    fs.chmodSync(join(workdir, 'locked'), 0o555)
    fs.chmodSync(join(workdir, 'b.txt'), 0o444)
    const root = process.geteuid?.() === 0
    for (const folder of [base, join(workdir, '..'), workdir]) fs.chmodSync(folder, 0o777)
    try {
      // Nothing is forbidden to root, so it is tried as somebody else.
      if (root) process.seteuid?.(65534)
      if (!fs.existsSync(workdir)) return t.skip('the temporary folder is private')
      const paths = ['locked/a.txt', 'locked/new.txt', 'locked/sub/new.txt', 'b.txt']
      for (const path of paths) {
        const message = `Cannot write ${path}: EACCES: permission denied`
        assert.throws(() => write(path, 'new'), { message })
      }
      assert.throws(() => edit('b.txt', 'old', 'new'), /Cannot write b.txt/)
    } finally {
      if (root) process.seteuid?.(0)
    }
    fs.chmodSync(join(workdir, 'locked'), 0o755)
    assert.deepEqual(fs.readdirSync(join(workdir, 'locked')), ['a.txt'])
    assert.deepEqual(fs.readdirSync(workdir).sort(), ['b.txt', 'locked'])
    for (const name of ['locked/a.txt', 'b.txt']) assert.equal(get(name), 'old')
  })

  test('a write that fails half-way, as on a full disk, changes nothing', posix, () => {
    put('a.txt', 'old')
    const source = new URL('../steps/support/tools/files.ts', import.meta.url)
    const script = `import { writeFile } from '${source}'
      const content = 'x'.repeat(100000)
      try { writeFile({ path: 'a.txt', content }, { workdir: process.argv[1] }) }
      catch (error) { console.log(error.message) }`
    const run = 'ulimit -f 8; exec "$0" --import tsx --input-type=module -e "$1" "$2"'
    const env = { ...process.env, TSX_DISABLE_CACHE: '1' } // it would hit the limit, too
    const args = ['-c', run, process.execPath, script, workdir]
    const cwd = join(import.meta.dirname, '..')
    const { stdout } = spawnSync('sh', args, { encoding: 'utf8', env, cwd })
    assert.match(stdout, /^Cannot write a.txt: EFBIG: file too large$/m)
    assert.equal(get('a.txt'), 'old')
    assert.deepEqual(fs.readdirSync(workdir), ['a.txt'])
  })
})

describe('edit_file', () => {
  test('replaces one occurrence, and says where', () => {
    put('a.js', 'one\ntwo\nthree\n')
    assert.equal(edit('a.js', 'two\nth', '2\nTH'), 'Edited a.js, line 2')
    assert.equal(get('a.js'), 'one\n2\nTHree\n')
    edit('a.js', '2\n', '')
    assert.equal(get('a.js'), 'one\nTHree\n')
  })

  test('takes both texts literally', () => {
    put('a.js', 'a.c abc (x|y)* [z] \\d {1} ^$ + ? -')
    edit('a.js', 'a.c', "$& $1 $` $' $$ \\n")
    edit('a.js', '(x|y)* [z] \\d {1} ^$ + ? -', '$<n>')
    assert.equal(get('a.js'), "$& $1 $` $' $$ \\n abc $<n>")
  })

  test('none', () => {
    put('a.js', 'if (a) {\n\treturn\n}\n')
    const message = 'old_text is not in a.js: copy it exactly as read_file shows it'
    assert.throws(() => edit('a.js', 'else', 'x'), { message })
    assert.throws(() => edit('a.js', ' \t ', 'x'), { message })
    const hint = /not in a.js, except with other white space: copy/
    assert.throws(() => edit('a.js', 'if (a) {\n  return\n}', 'x'), hint)
    assert.equal(get('a.js'), 'if (a) {\n\treturn\n}\n')
  })

  test('several, overlapping ones too: how many and where', () => {
    put('a.txt', 'x\ny\nx x\n')
    const message = 'old_text is 3 times in a.txt, on line 1, 3: add lines around it'
    assert.throws(() => edit('a.txt', 'x', 'z'), { message })
    put('b.txt', 'aaa')
    assert.throws(() => edit('b.txt', 'aa', 'z'), /2 times in b.txt, on line 1:/)
    put('c.txt', 'a\r\n\r\n\r\nb')
    assert.throws(() => edit('c.txt', '\n\n', 'z'), /2 times in c.txt, on line 1, 2:/)
    put('d.txt', 'x\n'.repeat(500_000))
    assert.throws(() => edit('d.txt', 'x', 'z'), /500000 times .* line 1, 2, .*10, …:/)
    assert.equal(get('a.txt'), 'x\ny\nx x\n')
  })

  test('nothing to look for, nothing to change', () => {
    put('a.txt', 'a\r\nb')
    assert.throws(() => edit('a.txt', '', 'x'), /old_text is empty/)
    assert.throws(() => edit('a.txt', 'a', 'a'), /nothing would change/)
    assert.throws(() => edit('a.txt', 'a\r\nb', 'a\nb'), /nothing would change/)
    assert.equal(get('a.txt'), 'a\r\nb')
  })

  test('CRLF stays, whichever line ends the model writes', () => {
    for (const [from, to] of [
      ['two\nthree', '2\n3\n4'],
      ['two\r\nthree', '2\r\n3\r\n4'],
      ['two\r\nthree', '2\n3\n4'],
      ['two\nthree', '2\r\n3\n4'],
    ]) {
      put('a.txt', 'one\r\ntwo\r\nthree\r\n')
      edit('a.txt', from, to)
      assert.equal(get('a.txt'), 'one\r\n2\r\n3\r\n4\r\n')
    }
    put('a.txt', 'one\r\ntwo\r\nthree')
    edit('a.txt', 'three', '3\n4\n')
    assert.equal(get('a.txt'), 'one\r\ntwo\r\n3\r\n4\r\n')
    edit('a.txt', '\n3\n', '\n')
    assert.equal(get('a.txt'), 'one\r\ntwo\r\n4\r\n')
    edit('a.txt', '\n4', ' 4')
    assert.equal(get('a.txt'), 'one\r\ntwo 4\r\n')
  })

  test('LF stays, and a file without line ends takes the new ones as they are', () => {
    put('a.txt', 'one\ntwo\n')
    edit('a.txt', 'one\r\ntwo', '1\r\n2\r\n3')
    assert.equal(get('a.txt'), '1\n2\n3\n')
    put('a.txt', 'one')
    edit('a.txt', 'one', '1\r\n2')
    assert.equal(get('a.txt'), '1\r\n2')
  })

  test('in a mixed file every line that stays keeps its end', () => {
    put('a.txt', 'a\nb\r\nc\nd\r\ne\n')
    edit('a.txt', 'b\nc\nd', 'b\nnew\nc\nd')
    assert.equal(get('a.txt'), 'a\nb\r\nnew\r\nc\nd\r\ne\n')
    edit('a.txt', 'a\nb\nnew\nc\n', 'a\nb\nc\n')
    assert.equal(get('a.txt'), 'a\nb\r\nc\nd\r\ne\n')
    edit('a.txt', 'e', 'e\nf')
    assert.equal(get('a.txt'), 'a\nb\r\nc\nd\r\ne\nf\n')
  })

  test('what read_file shows can be edited, whole or in part; a BOM stays', () => {
    put('a.txt', '\uFEFFone\r\ntwo\r\n')
    edit('a.txt', read('a.txt', 1).split('[')[0], 'ONE\r\n')
    assert.equal(get('a.txt'), '\uFEFFONE\r\ntwo\r\n')
    edit('a.txt', read('a.txt'), 'all\nnew\n')
    assert.equal(get('a.txt'), '\uFEFFall\r\nnew\r\n')
  })

  test('many that overlap are counted in good time', () => {
    put('a.txt', 'a'.repeat(400_000))
    const times = /^Error: old_text is 100 times in a\.txt, on line 1, …: /
    assert.throws(() => edit('a.txt', 'a'.repeat(200_000), 'b'), times)
  })

  test('a long text in a large file', () => {
    const block = Array.from({ length: 5_000 }, (_, i) => `line (${i}) of *many*`).join(
      '\n',
    )
    put('a.txt', `${'x\n'.repeat(1_000_000)}${block}\n`)
    assert.equal(edit('a.txt', block, 'short'), 'Edited a.txt, line 1000001')
    assert.ok(get('a.txt').endsWith('x\nshort\n'))
  })
})
