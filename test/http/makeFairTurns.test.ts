import { assert, describe, it } from "@effect/vitest"
import { Arbitrary, Deferred, Effect, Exit, Fiber } from "effect"
import { ServiceUnavailable } from "../../src/domain/Errors.ts"
import { makeFairTurns } from "../../src/http/makeFairTurns.ts"
import { CurrentDeadline } from "../../src/port/Deadline.ts"
import { elementOf, integer } from "../support/memory/arbitraries.ts"
import { eventually } from "../support/process/eventually.ts"

const queue = 100

/** Requests that stay in progress until they are let go, by party, and those in progress now. */
const hall = Effect.sync(() => {
  const inTurn = makeFairTurns(queue)
  const inProgress = new Map<string, number>()
  let most = 0
  const count = (party: string, change: number) => {
    inProgress.set(party, (inProgress.get(party) ?? 0) + change)
    most = Math.max(most, ...inProgress.values())
  }
  const request = (party: string, until: Effect.Effect<unknown> = Effect.void, limit = queue) =>
    inTurn(
      party,
      limit,
      Effect.acquireUseRelease(
        Effect.sync(() => count(party, 1)),
        () => until,
        () => Effect.sync(() => count(party, -1))
      )
    ).pipe(Effect.provideService(CurrentDeadline, { until: performance.now() + 20_000 }))
  return { request, inProgress: (party: string) => inProgress.get(party) ?? 0, most: () => most }
})

const times = <A, E>(n: number, request: Effect.Effect<A, E>) =>
  Effect.forEach(Array.from({ length: n }), () => Effect.forkChild(request))

describe("turns (F9)", () => {
  it.live("let one party have half of the queue while it is alone, and the rest wait", () =>
    Effect.gen(function* () {
      const { inProgress, request } = yield* hall
      const open = yield* Deferred.make<undefined>()
      const fibers = yield* times(80, request("one", Deferred.await(open)))
      yield* eventually(
        "half of them",
        Effect.sync(() => inProgress("one") === 50)
      )
      yield* Deferred.succeed(open, undefined)
      for (const fiber of fibers) assert.isTrue(Exit.isSuccess(yield* Fiber.await(fiber)))
    })
  )

  it.live("let another party in at once, and then keep the first one short", () =>
    Effect.gen(function* () {
      const { inProgress, request } = yield* hall
      const open = yield* Deferred.make<undefined>()
      const noisy = yield* times(90, request("noisy", Effect.sleep("20 millis")))
      yield* eventually(
        "the noisy one is in progress",
        Effect.sync(() => inProgress("noisy") > 0)
      )
      yield* request("quiet", Effect.void)
      const quiet = yield* Effect.forkChild(request("quiet", Deferred.await(open)))
      yield* eventually(
        "the noisy one has its share",
        Effect.sync(() => inProgress("noisy") <= 16)
      )
      assert.strictEqual(inProgress("quiet"), 1)
      yield* Deferred.succeed(open, undefined)
      for (const fiber of [...noisy, quiet]) assert.isTrue(Exit.isSuccess(yield* Fiber.await(fiber)))
    })
  )

  it.live("refuse what a party sends beyond its limit, and nothing of another", () =>
    Effect.gen(function* () {
      const { request } = yield* hall
      const open = yield* Deferred.make<undefined>()
      const flood = yield* times(10, request("unknown tokens", Deferred.await(open), 4))
      const refused = flood.slice(4)
      for (const fiber of refused) {
        assert.deepStrictEqual(yield* Fiber.await(fiber), Exit.fail(new ServiceUnavailable()))
      }
      yield* request("an account")
      yield* Deferred.succeed(open, undefined)
      for (const fiber of flood.slice(0, 4)) assert.isTrue(Exit.isSuccess(yield* Fiber.await(fiber)))
    })
  )

  it.live("end at the deadline of a request that still waits: nothing was done (F10, D14)", () =>
    Effect.gen(function* () {
      const inTurn = makeFairTurns(2)
      const held = yield* Effect.forkChild(inTurn("one", 9, Effect.never))
      yield* Effect.yieldNow
      const waiting = inTurn("one", 9, Effect.die("it must not begin")).pipe(
        Effect.provideService(CurrentDeadline, { until: performance.now() + 30 })
      )
      assert.deepStrictEqual(yield* Effect.exit(waiting), Exit.fail(new ServiceUnavailable()))
      yield* Fiber.interrupt(held)
      yield* inTurn("one", 1, Effect.void)
    })
  )

  it.live.prop(
    "are given back by every request, however it ends and whenever its caller leaves",
    [
      Arbitrary.array(elementOf(["succeeds", "fails", "dies", "is interrupted", "leaves while it waits"]), {
        minLength: 1,
        maxLength: 40
      }),
      integer(2, 6)
    ],
    ([kinds, queue]) =>
      Effect.gen(function* () {
        const inTurn = makeFairTurns(queue)
        const ends: Readonly<Record<string, Effect.Effect<void, string>>> = {
          succeeds: Effect.sleep(1),
          fails: Effect.andThen(Effect.sleep(1), Effect.fail("no")),
          dies: Effect.andThen(Effect.sleep(1), Effect.die("no"))
        }
        const fibers = yield* Effect.forEach(kinds, (kind) =>
          Effect.forkChild(
            inTurn("one", 100, ends[kind] ?? Effect.sleep(5)).pipe(
              Effect.provideService(CurrentDeadline, { until: performance.now() + 20_000 })
            )
          )
        )
        yield* Effect.forEach(kinds, (kind, index) => {
          const fiber = fibers[index]
          return fiber === undefined || kind in ends ? Effect.void : Fiber.interrupt(fiber)
        })
        for (const fiber of fibers) yield* Fiber.await(fiber)
        // With a limit of one a request is refused while a turn is taken.
        yield* inTurn("one", 1, Effect.void)
      }),
    { arbitrary: { runs: 50 } }
  )
})
