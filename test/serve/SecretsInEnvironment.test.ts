import { readFileSync, writeFileSync } from "node:fs"
import { join } from "node:path"
import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import { migratedDatabase } from "../support/database/freshDatabase.ts"
import { ringOf } from "../support/keys/keyrings.ts"
import { eventually } from "../support/process/eventually.ts"
import { byokScript } from "../support/process/runByok.ts"
import { startService } from "../support/process/ServiceProcess.ts"
import { temporaryDirectory } from "../support/process/temporaryDirectory.ts"

const probe = join(import.meta.dirname, "../support/process/EnvironmentProbe.ts")

/** Starts a service with its database and keyring in the environment, and reads which settings it still knows. */
const settingsLeft = (variables: Record<string, string>) =>
  Effect.gen(function* () {
    const { pid, signal, stderr } = yield* startService(
      { BYOK_KEYRING: ringOf("kek"), DATABASE_URL: yield* migratedDatabase, ...variables },
      ["--import", probe, byokScript, "serve"]
    )
    const answer = () => new RegExp(`^probe ${pid} (.*)$`, "m").exec(stderr())?.[1]
    yield* signal("SIGUSR2")
    yield* eventually("the probe has answered", () => answer() !== undefined)
    return JSON.parse(answer() ?? "") as unknown
  })

describe("secrets that the service was given in the environment", () => {
  it.live("are no longer there nor in Effect's Config; a copy that Effect made is found (control)", () =>
    Effect.gen(function* () {
      assert.deepStrictEqual(yield* settingsLeft({}), { environment: ["PORT"], config: ["PORT"] })
      assert.deepStrictEqual(yield* settingsLeft({ PROBE_LOOKS_FIRST: "yes" }), {
        environment: ["PORT"],
        config: ["BYOK_KEYRING", "DATABASE_URL", "PORT"]
      })
    })
  )

  it.live.skipIf(process.platform !== "linux")("or in a file for Node.js are not shown by the operating system", () =>
    Effect.gen(function* () {
      const file = join(yield* temporaryDirectory, "environment")
      writeFileSync(file, `DATABASE_URL=${yield* migratedDatabase}\nBYOK_KEYRING=${ringOf("kek")}\n`)
      const { pid } = yield* startService({ SHOWN: "a=b" }, [`--env-file=${file}`, byokScript, "serve"])
      const environment = readFileSync(`/proc/${pid}/environ`, "utf8").split("\0")
      assert.include(environment, "SHOWN=a=b")
      assert.notMatch(environment.join(), /DATABASE_URL|BYOK_KEYRING/)
    })
  )
})
