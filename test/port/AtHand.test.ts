import { Cause, Effect, Exit, Fiber, Latch } from "effect"
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

/** Resumes with a result in a later turn, unless it was left. */
const later = <A, E>(result: Effect.Effect<A, E>, left: () => void = () => {}) =>
  AtHand.coming<A, E>((_, resume) => {
    const timer = setImmediate(() => resume(result))
    return () => {
      clearImmediate(timer)
      left()
    }
  })
const deadline = { until: Number.POSITIVE_INFINITY }
const followed = <A, E>(effect: Effect.Effect<A, E>) =>
  Effect.callback<Exit.Exit<A, E>>((resume) => {
    AtHand.run(effect, deadline, Effect.runFork, (exit) => resume(Effect.succeed(exit)))
  })

describe("what is at hand", () => {
  it.effect("ends as in a fiber, and without one", function* () {
    for (const use of uses) {
      for (const exit of exits) {
        const wanted = yield* Effect.exit(use(ofEffect, exit))
        const found = use(AtHand, exit)
        if (Exit.isSuccess(exit)) assert.isTrue(Exit.isExit(found))
        assert.deepStrictEqual(yield* Effect.exit(found), wanted)
        assert.deepStrictEqual(yield* Effect.exit(use(AtHand, Effect.andThen(Effect.yieldNow, exit))), wanted)
        for (const coming of [later(exit), later(later(exit)), AtHand.suspend(() => later(exit))]) {
          assert.deepStrictEqual(yield* Effect.exit(use(AtHand, coming)), wanted)
          assert.deepStrictEqual(yield* followed(use(AtHand, coming)), wanted)
        }
      }
    }
  })

  it.effect("tells its exit once", function* () {
    for (const exit of exits) {
      for (const effect of [exit, Effect.suspend(() => exit), later(exit)]) {
        const told: Array<unknown> = []
        yield* Effect.exit(AtHand.onExit(effect, (exit) => told.push(exit)))
        assert.deepStrictEqual(told, [exit])
      }
    }
  })

  it.effect("dies of what whoever is told throws, alone", function* () {
    for (const effect of [Effect.succeed(1), later(Effect.succeed(1)), Effect.suspend(() => Effect.succeed(1))]) {
      const exit = yield* followed(AtHand.onExit(effect, thrown))
      assert.isTrue(Exit.hasDies(exit))
    }
  })

  it.effect("needs a fiber only from an effect on that is neither at hand nor coming", function* () {
    const forked: Array<unknown> = []
    const fork = <A, E>(effect: Effect.Effect<A, E>) => (forked.push(effect), Effect.runFork(effect))
    const plain = AtHand.flatMap(AtHand.map(later(Effect.succeed(1)), String), (text) => later(Effect.succeed(text)))
    const mixed = AtHand.flatMap(plain, (text) => Effect.delay(Effect.succeed(text), 0))
    for (const [effect, forks] of [
      [plain, 0],
      [mixed, 1]
    ] as const) {
      forked.length = 0
      const exit = yield* Effect.callback<Exit.Exit<string>>((resume) => {
        AtHand.run(effect, deadline, fork, (exit) => resume(Effect.succeed(exit)))
      })
      assert.deepStrictEqual([exit, forked.length], [Exit.succeed("1"), forks])
    }
  })

  it.effect(
    "is left once by whoever waits for it in a fiber or without one, and tells that it was interrupted",
    function* () {
      for (const isFollowed of [true, false]) {
        const events: Array<unknown> = []
        const told = AtHand.onExit(
          later(Effect.never, () => events.push("left")),
          (exit) => events.push(Exit.hasInterrupts(exit))
        )
        if (isFollowed) {
          const interrupt = AtHand.run(told, deadline, Effect.runFork, () => events.push("ended"))
          interrupt()
          interrupt()
        } else yield* Fiber.interrupt(yield* Effect.forkChild(told, { startImmediately: true }))
        assert.deepStrictEqual(events, ["left", true])
      }
    }
  )

  it.effect("is left no more once it has gone on uninterruptibly", function* () {
    const events: Array<string> = []
    const left = () => events.push("left")
    const gate = Latch.makeUnsafe()
    let interrupt = () => {}
    const rest = Effect.gen(function* () {
      setImmediate(() => {
        interrupt()
        gate.openUnsafe()
      })
      yield* gate.await
      events.push("done")
    })
    const kept = AtHand.uninterruptible(
      AtHand.flatMap(AtHand.interruptible(later(Effect.succeed(1), left)), () => rest)
    )
    const ends = yield* Effect.callback<Exit.Exit<void>>((resume) => {
      interrupt = AtHand.run(kept, deadline, Effect.runFork, (exit) => resume(Effect.succeed(exit)))
    })
    assert.deepStrictEqual([Exit.isFailure(ends), events], [true, ["done"]])
    const unkept = AtHand.uninterruptible(later(Effect.succeed(1), left))
    const fiber = yield* Effect.forkChild(unkept, { startImmediately: true })
    assert.deepStrictEqual([yield* Fiber.interrupt(fiber), events], [undefined, ["done"]])
  })
})
