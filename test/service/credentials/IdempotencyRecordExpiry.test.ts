import { DateTime, Duration, Effect, Layer } from "effect"
import { TestClock } from "effect/testing"
import * as Idempotency from "../../../src/service/credentials/Idempotency.ts"
import { IdempotencyRecords } from "../../../src/port/IdempotencyRecords.ts"
import { Recording } from "../../support/process/Recording.ts"
import { assert, describe, it } from "../../support/it.ts"

const day = 24 * 60 * 60 * 1000

/** A number of old idempotency records, and the calls that were made for them. */
const holding = (records: number, failing: (call: number) => boolean = () => false) => {
  const state = { records, calls: [] as Array<{ readonly at: number; readonly age: number; readonly limit: number }> }
  const port = Layer.mock(IdempotencyRecords, {
    deleteOlderThan: (duration, limit) =>
      Effect.gen(function* () {
        const at = (yield* DateTime.now).epochMilliseconds
        const age = Duration.toMillis(duration)
        state.calls.push({ at, age, limit })
        if (failing(state.calls.length)) return yield* Effect.die(new Error("the database is down"))
        const removed = at > age ? Math.min(limit, state.records) : 0
        state.records -= removed
        return removed
      })
  })
  return {
    state,
    service: Idempotency.expiry.pipe(Layer.provide(port), Layer.provideMerge(Recording.layer))
  }
}

describe("old idempotency records (SECURITY.md, Idempotency records)", () => {
  it.effect("stay for at least a day, and are then removed in small batches", function* () {
    const { service, state } = holding(1201)
    yield* Effect.gen(function* () {
      yield* TestClock.adjust(day)
      assert.isAbove(state.calls.length, 0)
      assert.strictEqual(state.records, 1201)
      yield* TestClock.adjust("2 hours")
      assert.strictEqual(state.records, 0)
    }).pipe(Effect.provide(service))
    assert.isTrue(state.calls.every(({ age, limit }) => age > day && limit <= 500))
    const inRow = state.calls.filter(({ at }, index) => at - (state.calls[index - 1]?.at ?? at) === 200)
    assert.lengthOf(inRow, 2, "each batch but the first comes after a pause")
  })

  it.effect("are removed by the first run that succeeds after failures; the failures are logged once", function* () {
    const { service, state } = holding(3, (call) => call <= 160)
    yield* Effect.gen(function* () {
      yield* TestClock.adjust(2 * day)
      assert.strictEqual(state.records, 0)
      const { logs } = yield* Recording
      assert.lengthOf(
        logs.filter(({ level, text }) => level === "Warn" && text.includes("Old idempotency records")),
        1
      )
    }).pipe(Effect.provide(service))
  })

  it.effect("are not removed after the service has stopped", function* () {
    const { service, state } = holding(0)
    yield* Effect.provide(TestClock.adjust("1 hour"), service)
    const before = state.calls.length
    assert.isAbove(before, 0)
    yield* TestClock.adjust(day)
    assert.lengthOf(state.calls, before)
  })
})
