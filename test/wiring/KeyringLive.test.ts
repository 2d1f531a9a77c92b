import { writeFileSync } from "node:fs"
import { join } from "node:path"
import { Effect } from "effect"
import { migratedDatabase } from "../support/database/freshDatabase.ts"
import { ringOf } from "../support/keys/keyrings.ts"
import { eventually } from "../support/process/eventually.ts"
import { runCommand } from "../support/process/runCommand.ts"
import { startService } from "../support/process/ServiceProcess.ts"
import { temporaryDirectory } from "../support/process/temporaryDirectory.ts"
import { assert, describe, it } from "../support/it.ts"

/** A directory with a keyring in it, and the settings of a service whose keyring a command prints. */
const begin = Effect.gen(function* () {
  const file = join(yield* temporaryDirectory, "key ring")
  const write = (text: string) => writeFileSync(file, text)
  const settings = {
    DATABASE_URL: yield* migratedDatabase,
    BYOK_KEYRING_COMMAND: JSON.stringify(["cat", file])
  }
  return { file, settings, write }
})

const keysWith = (settings: Readonly<Record<string, string>>) => runCommand(["keyring", "status", "--json"], settings)

describe("a keyring that a command prints (docs/keys.md, The keyring from a command)", () => {
  it.live("is read at the start and at a reload; a reload that fails keeps the old one", function* () {
    const { settings, write } = yield* begin
    write(ringOf("one"))
    const service = yield* startService({ ...settings, LOG_LEVEL: "info" })
    const reload = (says: string) =>
      Effect.andThen(
        Effect.sync(() => process.kill(service.pid, "SIGHUP")),
        eventually(says, () => service.stderr().includes(says))
      )
    write(`${ringOf("one")}\n${ringOf("two")}`)
    yield* reload("Keyring reloaded: one seals; its keys are one, two")
    write("canary:canary")
    yield* reload("Keyring not reloaded. BYOK_KEYRING_COMMAND: key 1: expected id:base64 of 32 bytes")
    write(
      Buffer.from(`${ringOf("two")}\n${ringOf("one")}\n`)
        .toString("base64")
        .replace(/.{76}/g, "$&\n")
    )
    yield* reload("Keyring reloaded: two seals; its keys are two, one")
    assert.notInclude(service.stderr(), "canary:")
  })

  it.live("that cannot be had is told in one sentence, before the database is asked", function* () {
    const { file, settings } = yield* begin
    const nowhere = { ...settings, DATABASE_URL: "postgres://127.0.0.1:1/nowhere" }
    const { code, stderr } = yield* keysWith(nowhere)
    const sentence = `expected a command that prints the keyring; found that cat ended with exit code 1: cat: '${file}': No such file or directory`
    assert.deepStrictEqual([code, stderr], [1, `BYOK_KEYRING_COMMAND: ${sentence}.\n`])
  })

  it.live("gets PATH, HOME and the variables that BYOK_KEYRING_COMMAND_ENV names", function* () {
    const { settings } = yield* begin
    const variables = {
      ...settings,
      BYOK_KEYRING_COMMAND: JSON.stringify(["sh", "-c", 'test -n "$PATH$HOME" && echo "$KEYRING$OTHER"']),
      BYOK_KEYRING_COMMAND_ENV: " KEYRING UNSET ",
      KEYRING: ringOf("named"),
      OTHER: "canary"
    }
    const { code, stdout } = yield* keysWith(variables)
    assert.strictEqual(code, 0)
    assert.include(stdout, '"kek_id":"named"')
  })

  it.live("is not read twice for one command", function* () {
    const { file, settings, write } = yield* begin
    write(ringOf("one"))
    const counting = `echo >> ${JSON.stringify(`${file}.count`)}; cat ${JSON.stringify(file)}`
    const command = JSON.stringify(["sh", "-c", counting])
    assert.strictEqual((yield* keysWith({ ...settings, BYOK_KEYRING_COMMAND: command })).code, 0)
    const counted = yield* runCommand(["keyring", "status", "--json"], {
      ...settings,
      BYOK_KEYRING_COMMAND: JSON.stringify([
        "sh",
        "-c",
        `test $(wc -l < ${JSON.stringify(`${file}.count`)}) = 1 && cat ${JSON.stringify(file)}`
      ])
    })
    assert.strictEqual(counted.code, 0, counted.stderr)
  })
})

describe("byok keyring add, promote and retire as filters (docs/keys.md, The keyring from a command)", () => {
  it.live("pass the keyring from standard input, plain or in Base64, to standard output", function* () {
    const { settings } = yield* begin
    const filter = (input: string, ...args: ReadonlyArray<string>) =>
      runCommand(["keyring", ...args, "-"], settings, input)
    const old = ringOf("old")
    const added = yield* filter(Buffer.from(old).toString("base64"), "add", "--id", "new")
    assert.deepStrictEqual([added.code, added.stderr], [0, "key new is pending in the keyring on standard output.\n"])
    const [first, second = ""] = added.stdout.trimEnd().split("\n")
    assert.strictEqual(first, old)
    assert.match(second, /^new:[A-Za-z0-9+/]{43}=$/)

    const promoted = yield* filter(added.stdout, "promote", "new")
    assert.deepStrictEqual([promoted.code, promoted.stdout], [0, `${second}\n${old}\n`])
    const retired = yield* filter(promoted.stdout, "retire", "old")
    assert.deepStrictEqual([retired.code, retired.stdout], [0, `${second}\n`])
    const status = yield* keysWith({ ...settings, BYOK_KEYRING_COMMAND: JSON.stringify(["printf", "%s", second]) })
    const { keys } = JSON.parse(status.stdout) as { readonly keys: ReadonlyArray<Record<string, unknown>> }
    assert.deepStrictEqual(
      keys.map(({ kek_id, role }) => `${kek_id} ${role}`),
      ["new primary", "old retired"]
    )
  })

  const form = "expected id:base64 of 32 bytes, with an id of 1 to 64 characters of A-Z a-z 0-9 . _ -"
  const malformed = `The keyring on standard input: key 1: ${form}; found `
  it.live("print nothing if they refuse the change or the input", function* () {
    const { settings } = yield* begin
    for (const [input, args, sentence] of [
      [ringOf("old"), ["retire", "old"], "Key old is the primary key: promote another one first.\n"],
      [ringOf("old"), ["promote", "other"], "There is no such key in the keyring.\n"],
      ["", ["add"], "The keyring must not be empty.\n"],
      ["bm90aGluZw==", ["add"], `${malformed}7 characters in another form.\n`],
      ["not Base64", ["add"], `${malformed}3 characters in another form.\n`]
    ] as const) {
      const { code, stderr, stdout } = yield* runCommand(["keyring", ...args, "-"], settings, input)
      assert.deepStrictEqual([code, stdout, stderr], [1, "", sentence])
    }
  })
})
