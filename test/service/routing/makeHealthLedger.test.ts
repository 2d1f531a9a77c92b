import { Effect, Layer } from "effect"
import { TestClock } from "effect/testing"
import { AccountId, CredentialId } from "../../../src/domain/Identifiers.ts"
import { initialCooldown } from "../../../src/domain/routing/Health.ts"
import { DatabaseFailure } from "../../../src/port/DatabaseFailure.ts"
import { type ParkingChange, Parkings } from "../../../src/port/Parkings.ts"
import { makeHealthLedger } from "../../../src/service/routing/ledgers.ts"
import { assert, describe, it } from "../../support/it.ts"

const free = { whole: initialCooldown(1), model: initialCooldown(1) }
const leasedKey = (model: string) => ({
  account_id: AccountId.make("00000000-0000-7000-8000-00000000000a"),
  credential_id: CredentialId.make("00000000-0000-7000-9000-000000000001"),
  key_version: 1,
  model
})

const failure = new DatabaseFailure({ kind: "SqlError", sqlstate: "57P01", constraint: undefined })

describe("storing the health of keys", () => {
  it.effect("retries until the database is back, with the reported end", () => {
    let away = true
    let locked = "a/two"
    const stored: Array<ParkingChange> = []
    const layer = Layer.mock(Parkings, {
      store: (changes) =>
        Effect.suspend(() => {
          if (away) return Effect.die(failure)
          stored.push(...changes.filter(({ model }) => model !== locked))
          return Effect.succeed(changes.filter(({ model }) => model === locked))
        })
    })
    return Effect.gen(function* () {
      const { report } = yield* makeHealthLedger(() => {})
      report(leasedKey("a/one"), free, { _tag: "Forbidden" })
      yield* TestClock.adjust("10 seconds")
      assert.deepStrictEqual(stored, [])
      away = false
      yield* TestClock.adjust("1 second")
      assert.deepStrictEqual(
        stored.map(({ model }) => model),
        ["a/one"]
      )
      assert.closeTo(stored[0]?.remaining ?? 0, 49_000, 1)
      report(leasedKey("a/two"), free, { _tag: "Forbidden" })
      yield* TestClock.adjust("10 seconds")
      assert.lengthOf(stored, 1, "it met a lock")
      locked = ""
      yield* TestClock.adjust("1 second")
      assert.deepStrictEqual(
        stored.slice(1).map(({ model, remaining }) => [model, Math.round(remaining ?? 0)]),
        [["a/two", 49_000]]
      )
    }).pipe(Effect.scoped, Effect.provide(layer))
  })
})
