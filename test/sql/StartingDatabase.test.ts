import { assert, describe, it } from "@effect/vitest"
import { Effect, Fiber } from "effect"
import { TestClock } from "effect/testing"
import { openDatabase } from "../../src/Persistence.ts"
import { eventually } from "../support/eventually.ts"
import { settingsFor } from "../support/freshDatabase.ts"
import { refusingPostgres } from "../support/RefusingPostgres.ts"

/** Opens the database of a server that always answers with this SQLSTATE. */
const openOn = (sqlstate: string) =>
  Effect.gen(function* () {
    const { port, refused } = yield* refusingPostgres(sqlstate, "no, canary")
    const opening = yield* Effect.forkChild(openDatabase(settingsFor(`postgres://u:p@127.0.0.1:${port}/d`)))
    /** Waits until it was asked so often, or will not be any more. */
    const asked = (count: number) =>
      eventually(
        `asked ${count} times`,
        Effect.sync(() => refused() >= count || opening.pollUnsafe() !== undefined)
      )
    return { asked, opening, refused }
  })

describe("at the start of the service a database", () => {
  it.effect("that is still starting (57P03) is asked again for ten seconds, then given up in one sentence", () =>
    Effect.gen(function* () {
      const { asked, opening, refused } = yield* openOn("57P03")
      for (let count = 1; count <= 21; count++) {
        yield* asked(count)
        assert.strictEqual(refused(), count)
        yield* TestClock.adjust("500 millis")
      }
      const { _tag, message } = yield* Effect.flip(Fiber.join(opening))
      assert.strictEqual(_tag, "InvalidSetting")
      assert.match(message, /^The database cannot be used: \w+ 57P03\.$/)
      assert.strictEqual(refused(), 21)
    })
  )

  it.effect("that refuses the password is not asked again", () =>
    Effect.gen(function* () {
      const { opening, refused } = yield* openOn("28P01")
      const { message } = yield* Effect.flip(Fiber.join(opening))
      assert.strictEqual(message, "The database cannot be used: AuthenticationError 28P01.")
      assert.strictEqual(refused(), 1)
    })
  )
})
