import { chmodSync, chownSync, lchownSync, mkdirSync, symlinkSync, writeFileSync } from "node:fs"
import { join } from "node:path"
import { otherWriter, otherWriterOf } from "../../src/runtime/otherWriter.ts"
import { temporaryDirectory } from "../support/process/temporaryDirectory.ts"
import { assert, describe, it } from "../support/it.ts"

const user = process.geteuid?.() ?? 0
const isRoot = user === 0
const nobody = 65534

/** Makes a folder of this mode. */
const folder = (path: string, mode: number) => {
  mkdirSync(path)
  chmodSync(path, mode)
  return path
}

/** Makes a file of this user, of mode 0600. */
const file = (path: string) => {
  writeFileSync(path, "", { mode: 0o600 })
  return path
}

describe("who else may write to a file or folder", () => {
  const own = { uid: user, gid: user }

  it("is nobody if it is of root or this user, and neither group nor others may write", () => {
    for (const mode of [0o755, 0o711, 0o500, 0o444]) {
      assert.isUndefined(otherWriter({ ...own, mode }))
      assert.isUndefined(otherWriter({ uid: 0, gid: 4242, mode }))
    }
  })

  it("is its owner, its group or every user", () => {
    assert.strictEqual(otherWriter({ ...own, uid: 4242, mode: 0o700 }), "user 4242")
    assert.strictEqual(otherWriter({ ...own, gid: 4242, mode: 0o770 }), "group 4242")
    assert.strictEqual(otherWriter({ ...own, mode: 0o707 }), "every user")
  })

  it("is not the group of this user's number, unless others are in that group", () => {
    assert.isUndefined(otherWriter({ ...own, mode: 0o775 }))
    assert.strictEqual(otherWriter({ ...own, mode: 0o775 }, true), `group ${user}`)
  })
})

describe("who else can change what a path names", () => {
  it.effect("is nobody below folders of root and this user", function* () {
    const directory = yield* temporaryDirectory
    assert.isUndefined(otherWriterOf(directory))
    assert.isUndefined(otherWriterOf(file(join(directory, "file"))))
    assert.isUndefined(otherWriterOf(`${directory}/.//file`))
  })

  it.effect(
    "is everybody below a folder that everybody may write to, also through a link into or out of it",
    function* () {
      const directory = yield* temporaryDirectory
      const open = folder(join(directory, "open"), 0o777)
      const closed = folder(join(open, "closed"), 0o700)
      const inside = file(join(closed, "file"))
      const outside = file(join(directory, "file"))
      symlinkSync(inside, join(directory, "into"))
      symlinkSync(outside, join(open, "out"))
      symlinkSync("open/closed/../../open", join(directory, "relative"))
      const found = { path: open, by: "every user" }
      for (const path of [
        inside,
        join(directory, "into"),
        join(open, "out"),
        join(directory, "relative/closed/file")
      ]) {
        assert.deepStrictEqual(otherWriterOf(path), found, path)
      }
      assert.deepStrictEqual(otherWriterOf(open), found)
      assert.isUndefined(otherWriterOf(outside))
      chmodSync(open, 0o755)
      for (const path of [
        inside,
        join(directory, "into"),
        join(open, "out"),
        join(directory, "relative/closed/file")
      ]) {
        assert.isUndefined(otherWriterOf(path), path)
      }
    }
  )

  it.effect("is nobody for an own entry of a sticky folder, but everybody for the folder itself", function* () {
    const sticky = folder(join(yield* temporaryDirectory, "sticky"), 0o1777)
    symlinkSync(file(join(sticky, "file")), join(sticky, "link"))
    assert.isUndefined(otherWriterOf(join(sticky, "file")))
    assert.isUndefined(otherWriterOf(join(sticky, "link")))
    assert.deepStrictEqual(otherWriterOf(sticky), { path: sticky, by: "every user" })
  })

  it.effect.skipIf(!isRoot)("is another user who owns the file, a folder, or a link in a sticky folder", function* () {
    const directory = yield* temporaryDirectory
    const sticky = folder(join(directory, "sticky"), 0o1777)
    const theirs = file(join(directory, "theirs"))
    chownSync(theirs, nobody, nobody)
    const home = folder(join(directory, "home"), 0o755)
    file(join(home, "file"))
    chownSync(home, nobody, nobody)
    symlinkSync(directory, join(sticky, "link"))
    file(join(directory, "own"))
    const own = join(sticky, "link/own")
    assert.isUndefined(otherWriterOf(own))
    lchownSync(join(sticky, "link"), nobody, nobody)
    for (const [path, at] of [
      [theirs, theirs],
      [join(home, "file"), home],
      [own, join(sticky, "link")]
    ] as const) {
      assert.deepStrictEqual(otherWriterOf(path), { path: at, by: `user ${nobody}` })
    }
  })

  it.effect("is nobody for an open file that /proc names, and a missing path is the system's error", function* () {
    const directory = yield* temporaryDirectory
    if (process.platform === "linux") assert.isUndefined(otherWriterOf("/proc/self/fd/0"))
    assert.throws(() => otherWriterOf(join(directory, "none")), /ENOENT/)
    symlinkSync("loop", join(directory, "loop"))
    assert.throws(() => otherWriterOf(join(directory, "loop")), /ELOOP/)
  })
})
