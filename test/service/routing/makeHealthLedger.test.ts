import { assert, describe, it } from "@effect/vitest"
import { Effect, Layer, Logger } from "effect"
import { TestClock } from "effect/testing"
import { AccountId, CredentialId } from "../../../src/domain/Identifiers.ts"
import { unknown } from "../../../src/domain/routing/Health.ts"
import { DatabaseFailure } from "../../../src/port/DatabaseFailure.ts"
import { type ParkingChange, Parkings } from "../../../src/port/Parkings.ts"
import { makeHealthLedger } from "../../../src/service/routing/makeHealthLedger.ts"

const free = { whole: unknown(1), model: unknown(1) }
const tried = (model: string) => ({
  account_id: AccountId.make("00000000-0000-7000-8000-00000000000a"),
  credential_id: CredentialId.make("00000000-0000-7000-9000-000000000001"),
  key_version: 1,
  model
})

const failure = (sqlstate: string) => new DatabaseFailure({ kind: "SqlError", sqlstate, constraint: undefined })

/** Stores changes unless one of them fails, and records what was stored and logged. */
const recording = (failureOf: (change: ParkingChange) => DatabaseFailure | undefined) => {
  const stored: Array<ParkingChange> = []
  const logged: Array<unknown> = []
  const store = (changes: ReadonlyArray<ParkingChange>) =>
    Effect.suspend(() => {
      const failed = changes.map(failureOf).find((found) => found !== undefined)
      if (failed !== undefined) return Effect.die(failed)
      stored.push(...changes)
      return Effect.void
    })
  const layer = Layer.merge(
    Layer.mock(Parkings, { store }),
    Logger.layer([Logger.make(({ message }) => void logged.push(message))])
  )
  return { layer, logged, models: () => stored.map(({ model }) => model), stored }
}

describe("storing what was seen of keys", () => {
  it.effect("drops a change that can never be stored, with a line in the log, and stores the others", () => {
    const { layer, logged, models } = recording(({ model }) => (model === "a/bad" ? failure("22021") : undefined))
    return Effect.gen(function* () {
      const { report } = yield* makeHealthLedger
      for (const model of ["a/one", "a/bad", "a/two"]) report(tried(model), free, { _tag: "Forbidden" })
      yield* TestClock.adjust("1 millis")
      assert.deepStrictEqual(models(), ["a/one", "a/two"])
      report(tried("a/later"), free, { _tag: "Forbidden" })
      yield* TestClock.adjust("1 millis")
      assert.deepStrictEqual(models(), ["a/one", "a/two", "a/later"])
      assert.lengthOf(logged, 1)
      assert.include(String(logged[0]), "cannot be stored and is dropped: SqlError 22021")
    }).pipe(Effect.scoped, Effect.provide(layer))
  })

  it.effect("goes on until a database that is away is back, with the end as it was reported", () => {
    let away = true
    const { layer, logged, models, stored } = recording(() => (away ? failure("57P01") : undefined))
    return Effect.gen(function* () {
      const { report } = yield* makeHealthLedger
      report(tried("a/one"), free, { _tag: "Forbidden" })
      yield* TestClock.adjust("10 seconds")
      assert.deepStrictEqual(models(), [])
      away = false
      yield* TestClock.adjust("1 second")
      assert.deepStrictEqual(models(), ["a/one"])
      assert.closeTo(stored[0]?.remaining ?? 0, 49_000, 1)
      assert.deepStrictEqual(logged, [])
    }).pipe(Effect.scoped, Effect.provide(layer))
  })
})
