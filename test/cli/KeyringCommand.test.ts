import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import { parseKeyring } from "../../src/crypto/keyring/Keyring.ts"
import { onlyObject, textIn } from "../support/process/CommandLine.ts"
import { runCommand } from "../support/process/runCommand.ts"

const line = /^kek-\d{4}-\d\d-\d\d-[0-9a-f]{6}:[A-Za-z0-9+/]{43}=$/

describe("byok keyring generate (SECURITY.md, Keyring)", () => {
  it.live("prints one new id:base64 of 32 bytes, ready for a keyring file, without a database", () =>
    Effect.gen(function* () {
      const { code, stderr, stdout } = yield* runCommand(["keyring", "generate"])
      assert.deepStrictEqual({ code, stderr }, { code: 0, stderr: "" })
      assert.match(stdout.trimEnd(), line)
      assert.strictEqual(parseKeyring(stdout).byId.size, 1)

      const keyring = textIn(onlyObject(yield* runCommand(["keyring", "generate", "--json"])), "keyring")
      assert.match(keyring, line)
      assert.notStrictEqual(keyring.split(":")[1], stdout.trimEnd().split(":")[1])
    })
  )
})
