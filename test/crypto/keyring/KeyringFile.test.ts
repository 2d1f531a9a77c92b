import { chownSync, lstatSync, readFileSync, readdirSync, rmSync, statSync, symlinkSync } from "node:fs"
import { dirname, join } from "node:path"
import { Worker } from "node:worker_threads"
import { Effect, Exit } from "effect"
import { editKeyringFile } from "../../../src/crypto/keyring/KeyringFile.ts"
import { createPrivateFile } from "../../../src/runtime/SecretFile.ts"
import { runProgram } from "../../support/process/runNode.ts"
import { fileOfMode, secret, temporaryDirectory } from "../../support/process/temporaryDirectory.ts"
import type { Found, Race } from "./RacingWriter.ts"
import { assert, describe, it } from "../../support/it.ts"

const root = join(import.meta.dirname, "../../..")
const sources = ["src/crypto/keyring/KeyringFile.ts", "src/runtime/SecretFile.ts"].map((path) =>
  JSON.stringify(join(root, path))
)

/** The settings of a process whose files can hardly grow, as on an almost full volume. */
const toldWithLittleRoom = (effect: string, file: string) => {
  const script = `
    import { Effect } from "effect"
    import { editKeyringFile } from ${sources[0]}
    import { createPrivateFile } from ${sources[1]}
    const [, file] = process.argv
    const { message } = await Effect.runPromise(Effect.flip(${effect}))
    process.stdout.write(message)`
  const limited = ["-c", 'ulimit -f 8 && exec "$@"', "sh", process.execPath, "--input-type=module", "-e", script, file]
  const variables = { NODE_DISABLE_COMPILE_CACHE: "1" }
  return Effect.map(runProgram("/bin/sh", limited, { cwd: root, variables }), ({ code, stderr, stdout }) => {
    assert.deepStrictEqual({ code, stderr }, { code: 0, stderr: "" })
    return stdout
  })
}

/** The results of two threads that create the same keyring files at the same moment. */
const race = (directory: string, arrived: Race["arrived"]) =>
  Effect.forEach(
    ["kek-1:one", "kek-2:two"],
    (text) =>
      Effect.callback<ReadonlyArray<Found>>((resume) => {
        const worker = new Worker(join(import.meta.dirname, "RacingWriter.ts"), {
          workerData: { directory, text, arrived } satisfies Race
        })
        worker.once("message", (found: ReadonlyArray<Found>) => resume(Effect.succeed(found)))
        worker.once("error", (error) => resume(Effect.die(error)))
        return Effect.promise(() => worker.terminate())
      }),
    { concurrency: 2 }
  )

/** The file has this text, and no other file is beside it. */
const assertLeft = (file: string, text: string) => {
  assert.strictEqual(readFileSync(file, "utf8"), text)
  assert.deepStrictEqual(readdirSync(dirname(file)), ["keyring"])
}

describe("a new keyring file (docs/keys.md, The keyring)", () => {
  it.effect("has mode 0600 and the text that was written", function* () {
    const file = join(yield* temporaryDirectory, "keyring")
    yield* createPrivateFile(file, secret)
    assert.strictEqual(statSync(file).mode & 0o777, 0o600)
    assertLeft(file, `${secret}\n`)
  })

  it.effect("does not replace an existing file", function* () {
    const file = yield* fileOfMode(0o600)
    const { message } = yield* Effect.flip(createPrivateFile(file, "kek-2:other"))
    assert.strictEqual(message, "expected a file that can be written: file already exists (EEXIST)")
    assertLeft(file, secret)
  })

  it.effect("is removed if it cannot be written completely", function* () {
    const path = yield* temporaryDirectory
    const told = yield* toldWithLittleRoom('createPrivateFile(file, "k".repeat(100_000))', join(path, "keyring"))
    assert.strictEqual(told, "expected a file that can be written: file too large (EFBIG)")
    assert.deepStrictEqual(readdirSync(path), [])
  })

  it.effect("is reported as not writable if its directory is missing", function* () {
    const { message } = yield* Effect.flip(createPrivateFile(join(yield* temporaryDirectory, "none/keyring"), secret))
    assert.strictEqual(message, "expected a file that can be written: no such file or directory (ENOENT)")
  })

  it.effect("is created by one of two concurrent writers, and both read its complete text", function* () {
    const directory = yield* temporaryDirectory
    const arrived = new Int32Array(new SharedArrayBuffer(4 * 50))
    const [one = [], two = []] = yield* race(directory, arrived)
    assert.deepStrictEqual([one.length, two.length], [50, 50])
    one.forEach(({ text, told }, round) => {
      const other = two[round]
      assert.strictEqual(other?.text, text)
      assert.deepStrictEqual([told, other?.told].sort(), [
        "",
        "expected a file that can be written: file already exists (EEXIST)"
      ])
      assert.strictEqual(text, told === "" ? "kek-1:one\n" : "kek-2:two\n")
    })
    assert.lengthOf(readdirSync(directory), 50)
  })
})

describe("changing a keyring file (docs/keys.md, Rotate the keyring)", () => {
  const edit = (file: string, text: string) => editKeyringFile(file, () => Effect.succeed(text))

  it.effect.each([
    ["0400", 0o400],
    ["0600", 0o600]
  ] as const)("writes the new text, keeps the mode %s, and leaves no temporary file", function* ([, mode]) {
    const file = yield* fileOfMode(mode)
    const seen: Array<string> = []
    yield* editKeyringFile(file, (text) => {
      seen.push(text, readFileSync(file, "utf8"))
      assert.strictEqual(statSync(`${file}.new`).mode & 0o777, 0o600)
      return Effect.succeed("changed\n")
    })
    assert.deepStrictEqual(seen, [secret, secret])
    assertLeft(file, "changed\n")
    assert.strictEqual(statSync(file).mode & 0o777, mode)
  })

  it.effect("keeps the old text and leaves no temporary file if the change fails or is interrupted", function* () {
    const file = yield* fileOfMode(0o600)
    for (const change of [Effect.fail("no"), Effect.die("no"), Effect.interrupt]) {
      assert.isTrue(Exit.isFailure(yield* Effect.exit(editKeyringFile(file, () => change))))
      assertLeft(file, secret)
    }
  })

  it.effect.skipIf(process.getuid?.() !== 0)("keeps the group of the file when done by root", function* () {
    const file = yield* fileOfMode(0o600)
    chownSync(file, 0, 65534)
    yield* edit(file, "changed")
    const { gid, mode, uid } = statSync(file)
    assert.deepStrictEqual({ uid, gid, mode: mode & 0o777 }, { uid: 0, gid: 65534, mode: 0o600 })
    assert.strictEqual(readFileSync(file, "utf8"), "changed")
  })

  it.effect.skipIf(process.getuid?.() !== 0)("is refused to root in another user's folder", function* () {
    const file = yield* fileOfMode(0o600)
    chownSync(dirname(file), 65533, 65534)
    const { message } = yield* Effect.flip(edit(file, "changed"))
    assert.strictEqual(
      message,
      `expected a path that only root and this user can change; found that user 65533 can change ${dirname(file)}`
    )
    assertLeft(file, secret)
  })

  it.effect("keeps the old text if the temporary file is deleted during the change", function* () {
    const file = yield* fileOfMode(0o600)
    const removed = editKeyringFile(file, () => {
      rmSync(`${file}.new`)
      return Effect.succeed("changed")
    })
    const { message } = yield* Effect.flip(removed)
    assert.strictEqual(message, "expected a file that can be replaced: no such file or directory (ENOENT)")
    assertLeft(file, secret)
  })

  it.effect("keeps the old text and leaves no temporary file if the disk is full", function* () {
    const file = yield* fileOfMode(0o600)
    const told = yield* toldWithLittleRoom('editKeyringFile(file, () => Effect.succeed("k".repeat(100_000)))', file)
    assert.strictEqual(told, "expected a file that can be replaced: file too large (EFBIG)")
    assertLeft(file, secret)
  })

  it.effect.each(["its name", "a link"])("is refused through %s while another change is in progress", function* (by) {
    const target = yield* fileOfMode(0o600)
    const file = by === "a link" ? join(yield* temporaryDirectory, "link") : target
    if (file !== target) symlinkSync(target, file)
    const meanwhile: Array<string> = []
    yield* editKeyringFile(file, () =>
      Effect.gen(function* () {
        const { message } = yield* Effect.flip(edit(file, "other"))
        meanwhile.push(message)
        return "changed"
      })
    )
    const sentence = `expected no file ${target}.new, which exists only while a command changes the keyring; found one`
    assert.deepStrictEqual(meanwhile, [sentence])
    assert.strictEqual(readFileSync(file, "utf8"), "changed")
    yield* edit(file, "again")
    assert.strictEqual(readFileSync(target, "utf8"), "again")
    assert.strictEqual(lstatSync(file).isSymbolicLink(), by === "a link")
  })

  it.effect("fails with ENOENT if the file is missing", function* () {
    const { message } = yield* Effect.flip(edit(join(yield* temporaryDirectory, "none"), "text"))
    assert.strictEqual(message, "expected a file that can be replaced: no such file or directory (ENOENT)")
  })
})
