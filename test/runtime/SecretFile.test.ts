import { chmodSync, chownSync, fstatSync, lchownSync, mkdirSync, statSync, symlinkSync, writeFileSync } from "node:fs"
import { dirname, join } from "node:path"
import { pathToFileURL } from "node:url"
import { Effect, Exit } from "effect"
import { isPrivate, readPrivateText, whileOpen } from "../../src/runtime/SecretFile.ts"
import { fileOfMode, secret, temporaryDirectory } from "../support/process/temporaryDirectory.ts"
import { runNode, runProgram } from "../support/process/runNode.ts"
import { assert, describe, it } from "../support/it.ts"

const isRoot = process.getuid?.() === 0
const module = pathToFileURL(join(import.meta.dirname, "../../src/runtime/SecretFile.ts")).href

describe("a file with a secret (docs/keys.md, The keyring)", () => {
  it.effect("is read with mode 0400 or 0600; with another, the error shows the mode, no content", function* () {
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

  it("is private with mode 0440 if root owns it and the process is in its group (F11)", () => {
    const groups = [1000, 2000]
    const mounted = { mode: 0o100440, uid: 0, gid: 2000 }
    assert.isTrue(isPrivate(mounted, groups))
    for (const changed of [{ uid: 1000 }, { gid: 3000 }, { mode: 0o100444 }, { mode: 0o100640 }, { mode: 0o100460 }]) {
      assert.isFalse(isPrivate({ ...mounted, ...changed }, groups), JSON.stringify(changed))
    }
    assert.isFalse(isPrivate(mounted, []))
  })

  it.effect.skipIf(!isRoot)(
    `with mode 0440 and owner root is read by a process of its group (F11)${isRoot ? "" : " (skipped: not root)"}`,
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

  it("is private with mode 0440 if root and its group own it, as systemd passes credentials", () => {
    const passed = { mode: 0o100440, uid: 0, gid: 0 }
    assert.isTrue(isPrivate(passed, [1000]))
    assert.isFalse(isPrivate({ ...passed, uid: 1000 }, [1000]))
    assert.isFalse(isPrivate({ ...passed, mode: 0o100444 }, [1000]))
  })

  const refusal = (by: string, path: string) =>
    `expected a path that only root and this user can change; found that ${by} can change ${path}`

  it.effect("is refused in a folder that others may write to, but not in a sticky one", function* () {
    const file = yield* fileOfMode(0o600)
    chmodSync(dirname(file), 0o777)
    assert.strictEqual((yield* Effect.flip(readPrivateText(file))).message, refusal("every user", dirname(file)))
    chmodSync(dirname(file), 0o1777)
    assert.strictEqual(yield* readPrivateText(file), secret)
  })

  it.effect.skipIf(!isRoot)("is read by a pod's user as Kubernetes mounts it, and not if others own it", function* () {
    const mount = yield* temporaryDirectory
    const data = join(mount, "..2026_01_01_00_00_00.123")
    mkdirSync(data)
    writeFileSync(join(data, "keyring"), secret)
    symlinkSync("..2026_01_01_00_00_00.123", join(mount, "..data"))
    symlinkSync("..data/keyring", join(mount, "keyring"))
    // An emptyDir in memory, owned by root and the fsGroup, to which everybody could write if it were not read-only.
    chownSync(mount, 0, 1000)
    chmodSync(mount, 0o3777)
    chownSync(data, 0, 1000)
    chmodSync(data, 0o2755)
    chownSync(join(data, "keyring"), 0, 1000)
    chmodSync(join(data, "keyring"), 0o440)
    const program = `
      process.setgroups([1000]); process.setgid(1000); process.setuid(1000)
      const { readPrivateText } = await import(${JSON.stringify(module)})
      const { Effect } = await import("effect")
      const result = Effect.match(readPrivateText(process.argv[1]), {
        onFailure: ({ message }) => message,
        onSuccess: (text) => text
      })
      console.log(Effect.runSync(result))`
    const file = join(mount, "keyring")
    const read = runNode(["--input-type=module", "--eval", program, file], { cwd: import.meta.dirname })
    assert.deepStrictEqual(yield* read, { code: 0, stdout: `${secret}\n`, stderr: "" })
    lchownSync(join(mount, "..data"), 65534, 65534)
    assert.strictEqual((yield* read).stdout, `${refusal("user 65534", join(mount, "..data"))}\n`)
  })

  it.effect("is read from a pipe that the shell opened", function* () {
    const program = `
      const { readPrivateText } = await import(${JSON.stringify(module)})
      const { Effect } = await import("effect")
      console.log(Effect.runSync(readPrivateText("/dev/fd/3")))`
    const shell = `echo ${secret} | { exec 3<&0; exec "$@"; }`
    const node = [process.execPath, "--input-type=module", "--eval", program]
    const { stderr, stdout } = yield* runProgram("/bin/sh", ["-c", shell, "sh", ...node], { cwd: import.meta.dirname })
    assert.deepStrictEqual({ stderr, stdout }, { stderr: "", stdout: `${secret}\n\n` })
  })

  it.effect("is judged by its own mode when read through a symbolic link", function* () {
    const file = yield* fileOfMode(0o644)
    const link = join(yield* temporaryDirectory, "link")
    symlinkSync(file, link)
    assert.isTrue(Exit.isFailure(yield* Effect.exit(readPrivateText(link))))
    chmodSync(file, 0o600)
    assert.strictEqual(yield* readPrivateText(link), secret)
  })

  it.effect("is refused with the reason, but not its path, if it is missing or a directory", function* () {
    const path = yield* temporaryDirectory
    const missing = yield* Effect.flip(readPrivateText(join(path, "missing")))
    assert.strictEqual(missing._tag, "UnusableFile")
    assert.strictEqual(missing.message, "expected a file that can be read: no such file or directory (ENOENT)")
    chmodSync(path, 0o700)
    const wrong = yield* Effect.flip(readPrivateText(path))
    assert.match(wrong.message, /^expected a file .*(\(EISDIR\)|; found 0700)$/)
  })
})

it("whileOpen keeps a file open during its callback, and closes it even if that throws", () => {
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
