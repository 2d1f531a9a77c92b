import { Cause, Effect, Exit } from "effect"
import * as AtHand from "../../src/port/AtHand.ts"
import { assert, describe, it } from "../support/it.ts"

const exits: ReadonlyArray<Exit.Exit<number, string>> = [
  Exit.succeed(1),
  Exit.fail("refused"),
  Exit.die("a defect"),
  Exit.interrupt(1)
]
const thrown = (): never => {
  throw new Error("thrown")
}
/** What is done with an exit, with a value or in an effect, that succeeds, fails or throws. */
const uses: ReadonlyArray<
  (with_: typeof AtHand, effect: Effect.Effect<number, string>) => Effect.Effect<unknown, unknown>
> = [
  (_, effect) => _.map(effect, (n) => n + 1),
  (_, effect) => _.map(effect, thrown),
  (_, effect) => _.flatMap(effect, (n) => Effect.succeed(n + 1)),
  (_, effect) => _.flatMap(effect, () => Effect.fail("another")),
  (_, effect) => _.flatMap(effect, thrown),
  (_, effect) => _.catchCause(effect, (cause) => Effect.succeed(Cause.hasDies(cause))),
  (_, effect) => _.catchCause(effect, thrown),
  (_, effect) => _.catchError(effect, (error) => Effect.succeed(`${error} and caught`)),
  (_, effect) => _.mapError(effect, (error) => `${error} otherwise`),
  (_, effect) => _.interruptible(effect),
  (_, effect) => _.uninterruptible(effect),
  (_, effect) => _.all([Effect.succeed(0), effect])
]
const ofEffect = {
  ...AtHand,
  ...{ map: Effect.map, flatMap: Effect.flatMap, catchCause: Effect.catchCause, catchError: Effect.catch },
  ...{ mapError: Effect.mapError, interruptible: Effect.interruptible, uninterruptible: Effect.uninterruptible },
  all: Effect.all
} as unknown as typeof AtHand

describe("what is at hand", () => {
  it.effect("ends as in a fiber, and without one", function* () {
    for (const use of uses) {
      for (const exit of exits) {
        const wanted = yield* Effect.exit(use(ofEffect, exit))
        const found = use(AtHand, exit)
        if (Exit.isSuccess(exit)) assert.isTrue(Exit.isExit(found))
        assert.deepStrictEqual(yield* Effect.exit(found), wanted)
        assert.deepStrictEqual(yield* Effect.exit(use(AtHand, Effect.andThen(Effect.yieldNow, exit))), wanted)
      }
    }
  })

  it.effect("tells its exit once", function* () {
    for (const exit of exits) {
      for (const effect of [exit, Effect.suspend(() => exit)]) {
        const told: Array<unknown> = []
        yield* Effect.exit(AtHand.onExit(effect, (exit) => told.push(exit)))
        assert.deepStrictEqual(told, [exit])
      }
    }
  })
})
