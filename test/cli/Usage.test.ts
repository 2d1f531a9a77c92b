import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import { assertUsage } from "../support/process/assertUsage.ts"
import { runCommand } from "../support/process/runCommand.ts"

const uuid = "01935f6a-0000-7000-8000-000000000000"
const key = "byok_mk_canarycanarycanarycanarycanarycanarycanary"
const nameExpected = "--name must have 1 to 255 characters, none of them a control character."
const importExpected =
  'HASH must be the SHA-256 of the key, 64 lowercase hexadecimal characters: `printf %s "$KEY" | sha256sum` shows it.'
const hashExpected = "HASH must be the key's hash, 64 lowercase hexadecimal characters: `byok api-key list` shows it."

describe("wrong usage ends with exit code 2 before any database is opened (D40)", () => {
  it.live.each<readonly [name: string, args: string, says: RegExp]>([
    ["an unknown command", "acount create", /acount/],
    ["a command that needs another one", "account", /create +Create an account/],
    ["a flag that is missing", `workspace create --account ${uuid}`, /Missing required flag: --name/],
    ["an unknown flag", `api-key issue --account ${uuid} --name n --managment`, /--managment/]
  ])("%s: with help", ([, args, says]) =>
    Effect.gen(function* () {
      const { code, stderr, stdout } = yield* runCommand(args.split(" "))
      assert.strictEqual(code, 2)
      assert.match(stdout + stderr, says)
      assert.match(stdout + stderr, /USAGE\n {2}byok /)
    })
  )

  it.live.each<readonly [name: string, args: string, sentence: string]>([
    ["an account that is not a UUID", "workspace list --account 42", "--account must be a UUID."],
    ["a workspace that is not a UUID", "workspace delete 42 --yes", "ID must be a UUID."],
    ["a name that is too long", `account create --name ${"n".repeat(256)}`, nameExpected],
    ["a name that is empty", "account create --name=", nameExpected],
    ["an account's name with an escape sequence (F15)", "account create --name=a\u001b[2J", nameExpected],
    ["a workspace's name of two lines (F15)", `workspace create --account ${uuid} --name=a\nb`, nameExpected],
    ["a key's name with a C1 control (F15)", `api-key issue --account ${uuid} --name=a\u009b`, nameExpected],
    ["a key instead of its hash to import", `api-key import ${key} --account ${uuid} --name n`, importExpected],
    ["a key instead of an account", `api-key issue --name n --account ${key}`, "--account must be a UUID."],
    ["a key instead of its hash", `api-key revoke ${key} --json`, hashExpected]
  ])("%s: with help and a sentence that says what is expected, without echoing the argument", ([, args, sentence]) =>
    Effect.gen(function* () {
      assertUsage(yield* runCommand(args.split(" ")), sentence)
    })
  )

  it.live.each([
    ["an argument too many", `api-key revoke HASH ${key}`],
    ["a command", `api-key ${key}`]
  ])("a key given as %s is not echoed either", ([, args]) =>
    Effect.gen(function* () {
      const { code, stderr, stdout } = yield* runCommand((args ?? "").split(" "))
      assert.strictEqual(code, 2)
      assert.notInclude(stdout + stderr, "canary")
    })
  )

  it.live("--help says where the settings are (C9)", () =>
    Effect.gen(function* () {
      const { code, stdout } = yield* runCommand(["--help"])
      assert.strictEqual(code, 0)
      assert.match(stdout, /DATABASE_URL and BYOK_KEYRING_FILE: docs\/settings\.md lists/)
    })
  )

  it.live("--json leaves standard output empty, so help is never taken for a result", () =>
    Effect.gen(function* () {
      const { code, stderr, stdout } = yield* runCommand(["account", "create", "--json"])
      assert.strictEqual(code, 2)
      assert.match(stderr, /Missing required flag: --name/)
      assert.strictEqual(stdout, "")
    })
  )
})
