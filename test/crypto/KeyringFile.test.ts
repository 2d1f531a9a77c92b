import {
  chmodSync,
  closeSync,
  lstatSync,
  mkdtempSync,
  openSync,
  readFileSync,
  readdirSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync
} from "node:fs"
import { tmpdir } from "node:os"
import { dirname, join } from "node:path"
import { assert, describe, it } from "@effect/vitest"
import { Effect, Exit } from "effect"
import { editKeyringFile, readKeyringFile, writeKeyringFile } from "../../src/crypto/KeyringFile.ts"

const secret = "kek-1:ZmFrZS1mYWtlLWZha2UtZmFrZS1mYWtlLWZha2UtZmE="

const directory = Effect.acquireRelease(
  Effect.sync(() => mkdtempSync(join(tmpdir(), "byok-keyring-file-"))),
  (path) => Effect.sync(() => rmSync(path, { recursive: true }))
)

const fileOfMode = (mode: number) =>
  Effect.map(directory, (path) => {
    const file = join(path, "keyring")
    writeFileSync(file, secret)
    chmodSync(file, mode)
    return file
  })

const octal = (mode: number) => mode.toString(8).padStart(4, "0")

describe("a keyring file (security.md, Keyring)", () => {
  it.effect.each([["0400", 0o400] as const, ["0600", 0o600] as const])("of mode %s is read", ([, mode]) =>
    Effect.gen(function* () {
      assert.strictEqual(yield* readKeyringFile(yield* fileOfMode(mode)), secret)
    })
  )

  it.effect("of any mode that lets others in is refused, and told so without its content", () =>
    Effect.gen(function* () {
      const file = yield* fileOfMode(0o600)
      for (let mode = 0; mode <= 0o777; mode++) {
        if ((mode & 0o077) === 0 || (mode & 0o400) === 0) continue
        chmodSync(file, mode)
        const { message } = yield* Effect.flip(readKeyringFile(file))
        assert.strictEqual(message, `expected a file of mode 0400 or 0600; found ${octal(mode)}`)
      }
    })
  )

  it.effect("of every other mode than 0400 and 0600 is refused", () =>
    Effect.gen(function* () {
      const file = yield* fileOfMode(0o600)
      const accepted: Array<string> = []
      for (let mode = 0; mode <= 0o777; mode++) {
        chmodSync(file, mode)
        if (Exit.isSuccess(yield* Effect.exit(readKeyringFile(file)))) accepted.push(octal(mode))
      }
      assert.deepStrictEqual(accepted, ["0400", "0600"])
    })
  )

  it.effect("behind a link is judged by its own mode", () =>
    Effect.gen(function* () {
      const file = yield* fileOfMode(0o644)
      const link = join(yield* directory, "link")
      symlinkSync(file, link)
      assert.isTrue(Exit.isFailure(yield* Effect.exit(readKeyringFile(link))))
      chmodSync(file, 0o600)
      assert.strictEqual(yield* readKeyringFile(link), secret)
    })
  )

  it.effect("that is not there, or is a directory, is a failure that says why and not where", () =>
    Effect.gen(function* () {
      const path = yield* directory
      const missing = yield* Effect.flip(readKeyringFile(join(path, "missing")))
      assert.strictEqual(missing.message, "expected a file that can be read; found ENOENT")
      chmodSync(path, 0o700)
      const wrong = yield* Effect.flip(readKeyringFile(path))
      assert.match(wrong.message, /^expected a file .*; found (EISDIR|0700)$/)
    })
  )
})

describe("a new keyring file (security.md, Keyring)", () => {
  it.effect("has mode 0600 and can be read back", () =>
    Effect.gen(function* () {
      const file = join(yield* directory, "keyring")
      yield* writeKeyringFile(file, secret)
      assert.strictEqual(statSync(file).mode & 0o777, 0o600)
      assert.strictEqual((yield* readKeyringFile(file)).trim(), secret)
    })
  )

  it.effect("never takes the place of one that exists", () =>
    Effect.gen(function* () {
      const file = yield* fileOfMode(0o600)
      const { message } = yield* Effect.flip(writeKeyringFile(file, "kek-2:other"))
      assert.match(message, /found EEXIST$/)
      assert.strictEqual(readFileSync(file, "utf8"), secret)
    })
  )
})

describe("a keyring file that is changed", () => {
  const edit = (file: string, text: string) => editKeyringFile(file, () => Effect.succeed(text))

  it.effect.each([0o400, 0o600])("has the whole new text, its mode (%s) and nothing beside it", (mode) =>
    Effect.gen(function* () {
      const file = yield* fileOfMode(mode)
      const seen: Array<string> = []
      yield* editKeyringFile(file, (text) => {
        seen.push(text, readFileSync(file, "utf8"))
        assert.strictEqual(statSync(`${file}.new`).mode & 0o777, 0o600)
        return Effect.succeed("changed\n")
      })
      assert.deepStrictEqual(seen, [secret, secret])
      assert.strictEqual(readFileSync(file, "utf8"), "changed\n")
      assert.strictEqual(statSync(file).mode & 0o777, mode)
      assert.deepStrictEqual(readdirSync(dirname(file)), ["keyring"])
    })
  )

  it.effect("stays as it is, with nothing beside it, if the change fails or is given up", () =>
    Effect.gen(function* () {
      const file = yield* fileOfMode(0o600)
      for (const change of [Effect.fail("no"), Effect.die("no"), Effect.interrupt]) {
        assert.isTrue(Exit.isFailure(yield* Effect.exit(editKeyringFile(file, () => change))))
        assert.strictEqual(readFileSync(file, "utf8"), secret)
        assert.deepStrictEqual(readdirSync(dirname(file)), ["keyring"])
      }
    })
  )

  it.effect("is changed by one at a time: a second one is told, and takes nothing away", () =>
    Effect.gen(function* () {
      const file = yield* fileOfMode(0o600)
      const meanwhile: Array<string> = []
      yield* editKeyringFile(file, () =>
        Effect.gen(function* () {
          const { message } = yield* Effect.flip(edit(file, "other"))
          meanwhile.push(message)
          return "changed"
        })
      )
      const sentence = `expected no file ${file}.new, which a command makes while it changes the keyring; found one`
      assert.deepStrictEqual(meanwhile, [sentence])
      assert.strictEqual(readFileSync(file, "utf8"), "changed")
      yield* edit(file, "again")
      assert.strictEqual(readFileSync(file, "utf8"), "again")
    })
  )

  it.effect("behind a link stays behind it", () =>
    Effect.gen(function* () {
      const file = yield* fileOfMode(0o600)
      const link = join(yield* directory, "link")
      symlinkSync(file, link)
      yield* edit(link, "changed")
      assert.isTrue(lstatSync(link).isSymbolicLink())
      assert.strictEqual(readFileSync(file, "utf8"), "changed")
    })
  )

  it.effect("that is not there is told as such", () =>
    Effect.gen(function* () {
      const { message } = yield* Effect.flip(edit(join(yield* directory, "none"), "text"))
      assert.strictEqual(message, "expected a file that can be replaced; found ENOENT")
    })
  )
})

describe("a keyring file is closed again", () => {
  /** Descriptors are handed out from the lowest: one that is never closed raises all that follow. */
  const nextDescriptor = Effect.map(fileOfMode(0o600), (file) => {
    const descriptor = openSync(file, "r")
    closeSync(descriptor)
    return descriptor
  })

  it.effect.each([
    ["is read", 0o600, readKeyringFile],
    ["is refused", 0o644, (file: string) => Effect.ignore(readKeyringFile(file))],
    ["is changed", 0o600, (file: string) => editKeyringFile(file, Effect.succeed)],
    ["is not changed", 0o600, (file: string) => Effect.ignore(editKeyringFile(file, () => Effect.fail("no")))]
  ] as const)("when it %s", ([, mode, use]) =>
    Effect.gen(function* () {
      const file = yield* fileOfMode(mode)
      const before = yield* nextDescriptor
      yield* Effect.forEach(Array.from({ length: 200 }), (): Effect.Effect<unknown, unknown> => use(file))
      assert.isBelow(yield* nextDescriptor, before + 100)
    })
  )
})
