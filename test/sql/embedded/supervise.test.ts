import { assert, describe, it } from "@effect/vitest"
import { Cause, Deferred, Effect, Fiber, Logger } from "effect"
import { EmbeddedPostgresError } from "../../../src/sql/embedded/EmbeddedPostgresError.ts"
import { supervise } from "../../../src/sql/embedded/supervise.ts"

type Serving = Effect.Effect<void, EmbeddedPostgresError>

const gone = "Warn The embedded PostgreSQL has exited and is being restarted"
const failed = "Error The embedded PostgreSQL has failed and is being restarted"

const refused = Effect.fail(EmbeddedPostgresError.of("It cannot be started."))
const broken = Effect.sync((): void => {
  throw new TypeError("no streams")
})

/** What is logged if it ends in these ways, one after another, and then serves until it is stopped. */
const loggedAfter = (...ends: ReadonlyArray<Serving>) =>
  Effect.gen(function* () {
    const lines: Array<string> = []
    const logger = Logger.make(({ cause, logLevel, message }) => {
      lines.push([logLevel, message, ...(cause.reasons.length === 0 ? [] : [Cause.squash(cause)])].join(" "))
    })
    const serves = yield* Deferred.make<true>()
    const forever = Effect.andThen(Deferred.succeed(serves, true), Effect.never)
    const left: Array<Serving> = [...ends, forever]
    const supervised = supervise(
      Effect.suspend(() => left.shift() ?? Effect.void),
      () => Effect.succeed(false)
    )
    const fiber = yield* Effect.forkChild(Effect.provide(supervised, Logger.layer([logger])))
    yield* Effect.timeout(Deferred.await(serves), "20 seconds")
    yield* Fiber.interrupt(fiber)
    return lines
  })

describe("the embedded database is restarted", () => {
  it.live("if it went away, or could not be started", () =>
    Effect.gen(function* () {
      assert.deepStrictEqual(yield* loggedAfter(Effect.void, refused), [gone, "Warn It cannot be started."])
    })
  )

  it.live("if it fails unexpectedly, even repeatedly, which is logged", () =>
    Effect.gen(function* () {
      const line = `${failed} TypeError: no streams`
      assert.deepStrictEqual(yield* loggedAfter(broken, broken), [line, line])
    })
  )

  it.live("but not if the failure is final", () =>
    Effect.gen(function* () {
      const seen: Array<unknown> = []
      const final = (cause: Cause.Cause<EmbeddedPostgresError>) => Effect.sync(() => seen.push(Cause.squash(cause)) > 0)
      yield* supervise(broken, final)
      yield* supervise(refused, final)
      assert.deepStrictEqual(seen.map(String), [
        "TypeError: no streams",
        "EmbeddedPostgresError: It cannot be started."
      ])
    })
  )
})
