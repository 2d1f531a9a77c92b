import { Clock, Effect, Fiber } from "effect"
import { TestClock } from "effect/testing"
import { makeTurns } from "../../../src/service/routing/Pools.ts"
import { assert, describe, it } from "../../support/it.ts"

/** Turns on a clock that the work itself moves on, so that work takes milliseconds. */
const turns = Effect.gen(function* () {
  const clock = yield* Clock.Clock
  let worked = 0n
  const working = Object.assign(Object.create(clock) as Clock.Clock, {
    monotonicTimeNanosUnsafe: () => clock.monotonicTimeNanosUnsafe() + worked
  })
  const { inTurn, throttled } = yield* Effect.provideService(makeTurns, Clock.Clock, working)
  const take = (micros: number) =>
    throttled(() => {
      worked += BigInt(micros) * 1000n
      return micros
    })
  return { inTurn, take }
})

describe("work whose time grows with the size of a pool", () => {
  it.effect("pauses after each slice for as long as the slice took, at least one turn of the event loop", function* () {
    const { take } = yield* turns
    for (const [micros, rest] of [
      [0, 0],
      [499, 0],
      [500, 1],
      [3_000, 3],
      [7_200, 8]
    ] as const) {
      const worker = yield* Effect.forkChild(take(micros), { startImmediately: true })
      assert.isUndefined(worker.pollUnsafe(), "others have their turn first")
      if (rest > 0) {
        yield* TestClock.adjust(rest - 1)
        assert.isUndefined(worker.pollUnsafe())
        yield* TestClock.adjust(1)
      }
      assert.strictEqual(yield* Fiber.join(worker), micros)
    }
  })

  it.effect("runs one task at a time, alternating between accounts", function* () {
    const { inTurn, take } = yield* turns
    const done: Array<string> = []
    const work = (account: string) =>
      inTurn(
        account,
        Effect.andThen(
          take(2_000),
          Effect.sync(() => done.push(account))
        )
      )
    const workers = yield* Effect.forkChild(
      Effect.forEach(["one", "one", "one", "another"], work, { concurrency: "unbounded" })
    )
    for (const expected of [["one"], ["one", "one"], ["one", "one", "another"], ["one", "one", "another", "one"]]) {
      yield* TestClock.adjust(2)
      assert.deepStrictEqual(done, expected)
    }
    yield* Fiber.join(workers)
  })
})
