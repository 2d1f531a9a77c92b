import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import { Management } from "../../src/management/Management.ts"
import * as OfProcesses from "../../src/management/OfProcesses.ts"

describe("what the management port does for several processes while all are starting", () => {
  it.effect("says that none serves, and has them reload the keyring once they do", () =>
    Effect.gen(function* () {
      let reloads = 0
      const reloadStarting = () => void (reloads += 1)
      const { condition, reload } = yield* Effect.provide(
        Management,
        OfProcesses.layer({ wanted: 2, serving: () => [], reloadStarting })
      )
      assert.deepStrictEqual(yield* condition, {
        problems: ["no process is serving"],
        warnings: ["processes that serve: 0 of 2"]
      })
      assert.strictEqual(reloads, 0)
      assert.strictEqual((yield* Effect.flip(reload))._tag, "ServiceUnavailable")
      assert.strictEqual(reloads, 1)
    })
  )
})
