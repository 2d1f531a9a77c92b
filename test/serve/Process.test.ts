import { readFileSync, writeFileSync } from "node:fs"
import { join } from "node:path"
import { Effect } from "effect"
import { migratedDatabase } from "../support/database/freshDatabase.ts"
import { ringOf } from "../support/keys/keyrings.ts"
import { eventually } from "../support/process/eventually.ts"
import { byokScript } from "../support/process/runByok.ts"
import { startService } from "../support/process/ServiceProcess.ts"
import { temporaryDirectory } from "../support/process/temporaryDirectory.ts"
import { assert, describe, it } from "../support/it.ts"

const probe = join(import.meta.dirname, "../support/process/EnvironmentProbe.ts")

/** The limits of the young generation on the command line of a process. */
const limitsOf = (pid: number) =>
  readFileSync(`/proc/${pid}/cmdline`, "utf8")
    .split("\0")
    .filter((word) => word.includes("semi-space"))

/** Starts a service with database and keyring in the environment, and reads the settings that remain in the process. */
const probed = (variables: Record<string, string>) =>
  Effect.gen(function* () {
    const settings = { BYOK_KEYRING: ringOf("kek"), DATABASE_URL: yield* migratedDatabase, ...variables }
    const { pid, signal, stderr } = yield* startService(settings, ["--import", probe, byokScript, "serve"])
    const answer = () => new RegExp(`^probe ${pid} (.*)$`, "m").exec(stderr())?.[1]
    yield* signal("SIGUSR2")
    yield* eventually("the probe has answered", () => answer() !== undefined)
    return { pid, left: JSON.parse(answer() ?? "") as unknown }
  })

describe("the process of a service", () => {
  it.live("keeps no secret in its environment or Config; an earlier copy is found (control)", function* () {
    const { left } = yield* probed({})
    assert.deepStrictEqual(left, { environment: ["PORT"], config: ["PORT"] })
    const NODE_OPTIONS = "--max-semi-space-size=32"
    const control = yield* probed({ NODE_OPTIONS, PROBE_LOOKS_FIRST: "yes" })
    const config = ["BYOK_KEYRING", "DATABASE_URL", "PORT"]
    assert.deepStrictEqual(control.left, { environment: ["PORT"], config })
    if (process.platform === "linux") assert.deepStrictEqual(limitsOf(control.pid), [], "the operator's limit stays")
  })

  it.live.skipIf(process.platform !== "linux")(
    "keeps secrets of an --env-file out of /proc, and limits V8's young generation",
    function* () {
      const file = join(yield* temporaryDirectory, "environment")
      writeFileSync(file, `DATABASE_URL=${yield* migratedDatabase}\nBYOK_KEYRING=${ringOf("kek")}\n`)
      const program = [`--env-file=${file}`, byokScript, "serve"]
      const { pid, stdout } = yield* startService({ SHOWN: "a=b" }, program)
      const environment = readFileSync(`/proc/${pid}/environ`, "utf8").split("\0")
      assert.include(environment, "SHOWN=a=b")
      assert.notMatch(environment.join(), /DATABASE_URL|BYOK_KEYRING/)
      assert.include(stdout(), `as process ${pid};`, "under the id that was started")
      assert.deepStrictEqual(limitsOf(pid), ["--max-semi-space-size=16"])
    }
  )
})
