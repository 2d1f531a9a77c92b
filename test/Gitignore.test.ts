import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import { copyFileSync } from "node:fs"
import { join } from "node:path"
import { runProgram } from "./support/process/runNode.ts"
import { temporaryDirectory } from "./support/process/temporaryDirectory.ts"

const secrets = ["keyring", "keyring.old", "server.pem", "pin", ".byok/keyring", "deploy/secrets/environment"]
const sources = ["src/crypto/keyring/Keyring.ts", "test/crypto/keyring/Keyring.test.ts", "src/cli/KeyringCommand.ts"]

describe("a checkout", () => {
  it.effect("ignores keyrings, certificates and PINs, which must not be committed, and no sources (F20)", () =>
    Effect.gen(function* () {
      const cwd = yield* temporaryDirectory
      copyFileSync(join(import.meta.dirname, "../.gitignore"), join(cwd, ".gitignore"))
      yield* runProgram("git", ["init", "--quiet"], { cwd })
      const { stdout } = yield* runProgram("git", ["check-ignore", ...secrets, ...sources], { cwd })
      assert.deepStrictEqual(stdout.trimEnd().split("\n"), secrets)
    }).pipe(Effect.scoped)
  )
})
