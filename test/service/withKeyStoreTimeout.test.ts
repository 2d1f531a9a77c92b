import { assert, describe, it } from "@effect/vitest"
import { Effect, Fiber } from "effect"
import { TestClock } from "effect/testing"
import { withKeyStoreTimeout } from "../../src/service/withKeyStoreTimeout.ts"

describe("a key store (R10)", () => {
  it.effect("is given 3 seconds to answer", () =>
    Effect.gen(function* () {
      const asked = yield* Effect.forkChild(Effect.flip(withKeyStoreTimeout(Effect.never)))
      yield* TestClock.adjust(2999)
      assert.isUndefined(asked.pollUnsafe())
      yield* TestClock.adjust(1)
      const { _tag, reason } = yield* Fiber.join(asked)
      assert.deepStrictEqual([_tag, reason], ["KeyStoreUnavailable", "it does not answer"])
    })
  )

  it.effect("that answers in time is used", () =>
    Effect.gen(function* () {
      assert.strictEqual(yield* withKeyStoreTimeout(Effect.succeed(1)), 1)
      assert.strictEqual(yield* Effect.flip(withKeyStoreTimeout(Effect.fail("no"))), "no")
    })
  )
})
