import { readFileSync } from "node:fs"
import { assert } from "@effect/vitest"
import { Effect } from "effect"
import { OnDatabase } from "../support/process/firstStart.ts"
import { layerLive } from "../support/process/layerLive.ts"
import { startService } from "../support/process/ServiceProcess.ts"

const limitsOf = (pid: number) =>
  readFileSync(`/proc/${pid}/cmdline`, "utf8")
    .split("\0")
    .filter((word) => word.includes("semi-space"))

layerLive(OnDatabase.layer)("the limit of the young generation", (it) => {
  it.effect.skipIf(process.platform !== "linux")("holds for the process, under the id that was started", () =>
    Effect.gen(function* () {
      const { settings } = yield* OnDatabase
      const { pid, stdout } = yield* startService(settings)
      assert.include(stdout(), `as process ${pid};`)
      assert.deepStrictEqual(limitsOf(pid), ["--max-semi-space-size=16"])
    })
  )

  it.effect.skipIf(process.platform !== "linux")("leaves the one that an operator has set", () =>
    Effect.gen(function* () {
      const { settings } = yield* OnDatabase
      const { pid } = yield* startService({ ...settings, NODE_OPTIONS: "--max-semi-space-size=32" })
      assert.deepStrictEqual(limitsOf(pid), [])
    })
  )
})
