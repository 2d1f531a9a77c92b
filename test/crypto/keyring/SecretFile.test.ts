import { chmodSync, chownSync, fstatSync, statSync, symlinkSync } from "node:fs"
import { join } from "node:path"
import { pathToFileURL } from "node:url"
import { Effect, Exit } from "effect"
import { isPrivate, readPrivateText, whileOpen } from "../../../src/crypto/keyring/SecretFile.ts"
import { fileOfMode, secret, temporaryDirectory } from "../../support/process/temporaryDirectory.ts"
import { runNode } from "../../support/process/runNode.ts"
import { assert, describe, it } from "../../support/it.ts"

const isRoot = process.getuid?.() === 0
const module = pathToFileURL(join(import.meta.dirname, "../../../src/crypto/keyring/SecretFile.ts")).href

describe("a file with a secret (SECURITY.md, Keyring)", () => {
  it.effect("of mode 0400 or 0600 is read; of any other it is refused, without its content", function* () {
    const file = yield* fileOfMode(0o600)
    const read: Array<string> = []
    for (let mode = 0; mode <= 0o777; mode++) {
      chmodSync(file, mode)
      const octal = mode.toString(8).padStart(4, "0")
      const found = yield* Effect.match(readPrivateText(file), {
        onFailure: ({ message }) => message,
        onSuccess: (content) => content
      })
      if (found === secret) read.push(octal)
      else if ((mode & 0o400) !== 0) assert.strictEqual(found, `expected a file of mode 0400 or 0600; found ${octal}`)
    }
    assert.deepStrictEqual(read, isRoot ? ["0400", "0440", "0600"] : ["0400", "0600"])
  })

  it("of mode 0440 is private if root owns it and its group is one of the process, as Kubernetes mounts it (F11)", () => {
    const groups = [1000, 2000]
    const mounted = { mode: 0o100440, uid: 0, gid: 2000 }
    assert.isTrue(isPrivate(mounted, groups))
    for (const changed of [{ uid: 1000 }, { gid: 3000 }, { mode: 0o100444 }, { mode: 0o100640 }, { mode: 0o100460 }]) {
      assert.isFalse(isPrivate({ ...mounted, ...changed }, groups), JSON.stringify(changed))
    }
    assert.isFalse(isPrivate(mounted, []))
  })

  it.effect.skipIf(!isRoot)(
    `of mode 0440 is read by a process of its group (F11)${isRoot ? "" : " (skipped: not root)"}`,
    function* () {
      const file = yield* fileOfMode(0o440)
      const program = `
        process.setgroups([4242]); process.setgid(4343); process.setuid(4343)
        const { readPrivateText } = await import(${JSON.stringify(module)})
        const { Effect } = await import("effect")
        console.log(Effect.runSync(readPrivateText(process.argv[1])))`
      const read = runNode(["--input-type=module", "--eval", program, file], { cwd: import.meta.dirname })
      chownSync(file, 0, 4242)
      assert.deepStrictEqual(yield* read, { code: 0, stdout: `${secret}\n`, stderr: "" })
      chownSync(file, 4343, 4242)
      const refused = yield* read
      assert.strictEqual(refused.code, 1)
      assert.include(refused.stderr, "expected a file of mode 0400 or 0600; found 0440")
    }
  )

  it.effect("behind a symbolic link is judged by its own mode", function* () {
    const file = yield* fileOfMode(0o644)
    const link = join(yield* temporaryDirectory, "link")
    symlinkSync(file, link)
    assert.isTrue(Exit.isFailure(yield* Effect.exit(readPrivateText(link))))
    chmodSync(file, 0o600)
    assert.strictEqual(yield* readPrivateText(link), secret)
  })

  it.effect("that is missing, or is a directory, fails with the reason and without its path", function* () {
    const path = yield* temporaryDirectory
    const missing = yield* Effect.flip(readPrivateText(join(path, "missing")))
    assert.strictEqual(missing._tag, "UnusableFile")
    assert.strictEqual(missing.message, "expected a file that can be read: no such file or directory (ENOENT)")
    chmodSync(path, 0o700)
    const wrong = yield* Effect.flip(readPrivateText(path))
    assert.match(wrong.message, /^expected a file .*(\(EISDIR\)|; found 0700)$/)
  })
})

it("a file is open while it is used, and closed even if the use fails", () => {
  const used: Array<number> = []
  const use = (descriptor: number) => {
    used.push(descriptor)
    return fstatSync(descriptor).isFile()
  }
  const { ino } = statSync(import.meta.filename)
  /** Another thread may have opened another file under the same number. */
  const isClosed = (descriptor = -1) => {
    try {
      return fstatSync(descriptor).ino !== ino
    } catch (error) {
      return /EBADF/.test(String(error))
    }
  }
  assert.isTrue(whileOpen(import.meta.filename, (descriptor) => use(descriptor) && !isClosed(descriptor)))
  assert.isTrue(isClosed(used[0]))
  const fail = (descriptor: number) => {
    use(descriptor)
    throw new Error("no")
  }
  assert.throws(() => whileOpen(import.meta.filename, fail), /^no$/)
  assert.isTrue(isClosed(used[1]))
})
