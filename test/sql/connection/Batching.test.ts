import { Cause, Deferred, Duration, Effect, Exit, Fiber } from "effect"
import { ServiceUnavailable } from "../../../src/domain/Errors.ts"
import { makePoolMeter } from "../../../src/sql/connection/PoolMeter.ts"
import { makeBatching } from "../../../src/sql/connection/Batching.ts"
import { DatabaseFailure } from "../../../src/port/DatabaseFailure.ts"
import type { Operation, Query } from "../../../src/sql/connection/Query.ts"
import { eventually } from "../../support/process/eventually.ts"
import { assert, describe, it } from "../../support/it.ts"

const timedOut = Exit.die("timedOut")
const broken = new DatabaseFailure({ kind: "ConstraintError", sqlstate: "23514", constraint: "t_check" })
const gone = new DatabaseFailure({ kind: "ConnectionError", sqlstate: undefined, constraint: undefined })

/** Input that no shared statement can be written with. */
const unwritable = -1

/** A pool whose statements are noted, held back while `held`, and fail as `failing` says. */
const pool = Effect.fnUntraced(function* (options: { readonly queue?: number; readonly deadline?: number } = {}) {
  const statements: Array<ReadonlyArray<number>> = []
  const state = { held: false, failing: (_asked: number): DatabaseFailure | undefined => undefined }
  const until = (free: () => boolean) => eventually("it may go on", free)
  const query = (asked: ReadonlyArray<number>): Effect.Effect<ReadonlyArray<string>, DatabaseFailure> =>
    Effect.gen(function* () {
      statements.push(asked)
      yield* Effect.orDie(until(() => !state.held))
      for (const one of asked) {
        const failure = state.failing(one)
        if (failure !== undefined) return yield* failure
      }
      return asked.map((one) => `answer to ${one}`)
    })
  const { batch, holding } = yield* makeBatching({
    deadline: Duration.millis(options.deadline ?? 20_000),
    queue: options.queue ?? 1000,
    timedOut,
    meter: yield* makePoolMeter("reads"),
    retrying: <A>(asked: Query<A>) => asked as unknown as Effect.Effect<A, DatabaseFailure>
  })
  const asking = (operation: Operation, lockOf?: (asked: number) => string) =>
    batch<number, string>({
      operation,
      lockOf,
      sizeOf: (kibibytes) => kibibytes * 1024,
      one: (asked) => Effect.map(query([asked]), ([answer = ""]) => answer) as unknown as Query<string>,
      many: (asked) => {
        if (asked.includes(unwritable)) throw new RangeError("Invalid string length")
        return query(asked) as unknown as Query<ReadonlyArray<string>>
      }
    })
  const byParity = (asked: number) => (asked % 2 === 0 ? "even" : "odd")
  return {
    ask: asking("tests.ask"),
    change: asking("tests.change", byParity),
    remove: asking("tests.remove", byParity),
    holding,
    state,
    statements
  }
})

const turnOver = Effect.promise(() => new Promise((resolve) => setImmediate(() => setImmediate(resolve))))

const all = <A, E>(effects: ReadonlyArray<Effect.Effect<A, E>>) => Effect.all(effects, { concurrency: "unbounded" })

describe("concurrent requests", () => {
  it.live("share a statement, and each gets its own answer", function* () {
    const { ask, statements } = yield* pool()
    const answers = yield* all([3, 1, 2].map(ask))
    assert.deepStrictEqual(answers, ["answer to 3", "answer to 1", "answer to 2"])
    assert.deepStrictEqual(statements, [[3, 1, 2]])
  })

  it.live("have their own statement if they arrive one by one", function* () {
    const { ask, statements } = yield* pool()
    yield* ask(1)
    yield* ask(2)
    assert.deepStrictEqual(statements, [[1], [2]])
  })

  it.live("are sent at once after a single one, and share a statement after a shared one", function* () {
    const { ask, state, statements } = yield* pool()
    yield* ask(1)
    yield* Effect.yieldNow
    state.held = true
    const asked = yield* Effect.forkChild(all([2, 3, 4].map(ask)), { startImmediately: true })
    assert.deepStrictEqual(statements, [[1], [2]])
    state.held = false
    yield* Fiber.join(asked)
    yield* Effect.yieldNow
    yield* all([5, 6, 7].map(ask))
    assert.deepStrictEqual(statements, [[1], [2], [3, 4], [5, 6, 7]])
  })

  it.live("wait for the next statement while two are in progress", function* () {
    const { ask, state, statements } = yield* pool()
    state.held = true
    const asked: Array<Fiber.Fiber<string, ServiceUnavailable>> = []
    for (const one of [1, 2]) {
      asked.push(yield* Effect.forkChild(ask(one)))
      yield* eventually("it is in progress", () => statements.length === one)
    }
    for (const one of [3, 4, 5]) asked.push(yield* Effect.forkChild(ask(one)))
    yield* turnOver
    assert.strictEqual(statements.length, 2)
    state.held = false
    yield* Effect.forEach(asked, Fiber.join)
    assert.deepStrictEqual(statements, [[1], [2], [3, 4, 5]])
  })

  it.live("wait while a statement of any operation holds their lock", function* () {
    const { change, remove, state, statements } = yield* pool()
    state.held = true
    const asked: Array<Fiber.Fiber<unknown, unknown>> = []
    for (const one of [change(1), change(2), remove(3), change(5), remove(4), change(7)]) {
      asked.push(yield* Effect.forkChild(one, { startImmediately: true }))
      yield* turnOver
    }
    assert.deepStrictEqual(statements, [[1], [2]])
    state.held = false
    yield* Fiber.awaitAll(asked)
    assert.deepStrictEqual(statements.slice(2).flat().sort(), [3, 4, 5, 7])
  })

  it.live("wait while a statement outside batches holds their lock", function* () {
    const { change, holding, statements } = yield* pool()
    const end = yield* Deferred.make<boolean>()
    const own = yield* Effect.forkChild(holding("odd", Deferred.await(end)), { startImmediately: true })
    const asked = yield* Effect.forkChild(all([1, 2, 3].map(change)), { startImmediately: true })
    yield* turnOver
    assert.deepStrictEqual(statements, [[2]])
    yield* Deferred.succeed(end, true)
    yield* Fiber.joinAll([own, asked])
    assert.deepStrictEqual(statements, [[2], [1, 3]])
  })

  it.live("fail alone if they violate a constraint", function* () {
    const { ask, state, statements } = yield* pool()
    state.failing = (asked) => (asked === 2 ? broken : undefined)
    const exits = yield* all([1, 2, 3].map((asked) => Effect.exit(ask(asked))))
    assert.deepStrictEqual(exits, [Exit.succeed("answer to 1"), Exit.die(broken), Exit.succeed("answer to 3")])
    assert.deepStrictEqual(statements, [[1, 2, 3], [1], [2], [3]])
  })

  it.live.each(["40P01", "55P03", "57014"])("fail alone if they meet a lock (%s)", function* (sqlstate) {
    const { ask, state } = yield* pool()
    const locked = new DatabaseFailure({ kind: "SqlError", sqlstate, constraint: undefined })
    state.failing = (asked) => (asked === 2 ? locked : undefined)
    const exits = yield* all([1, 2, 3].map((asked) => Effect.exit(ask(asked))))
    assert.deepStrictEqual(exits, [Exit.succeed("answer to 1"), Exit.die(locked), Exit.succeed("answer to 3")])
  })

  it.live("fail together if the statement itself fails, and are not repeated one by one", function* () {
    const { ask, state, statements } = yield* pool()
    state.failing = () => gone
    const exits = yield* all([1, 2].map((asked) => Effect.exit(ask(asked))))
    assert.deepStrictEqual(exits, [Exit.die(gone), Exit.die(gone)])
    assert.deepStrictEqual(statements, [[1, 2]])
  })

  it.live("share statements of at most 4 MiB, while a larger request has its own", function* () {
    const { ask, statements } = yield* pool()
    yield* all([3072, 1024, 1024, 5120, 1024, 2048].map(ask))
    assert.deepStrictEqual(statements, [[3072, 1024], [1024], [5120], [1024, 2048]])
  })

  it.live("fail, together and alone, if building their statement throws", function* () {
    const { ask } = yield* pool()
    const exits = yield* all([1, unwritable, 2].map((asked) => Effect.exit(ask(asked))))
    for (const exit of exits) assert.isTrue(Exit.isFailure(exit) && Cause.squash(exit.cause) instanceof RangeError)
    assert.strictEqual(yield* ask(3), "answer to 3")
  })

  it.live("continue if one of their callers leaves", function* () {
    const { ask, state, statements } = yield* pool()
    state.held = true
    const [leaving, staying] = [yield* Effect.forkChild(ask(1)), yield* Effect.forkChild(ask(2))]
    yield* eventually("they are in progress", () => statements.length === 1)
    yield* Fiber.interrupt(leaving)
    state.held = false
    assert.strictEqual(yield* Fiber.join(staying), "answer to 2")
  })

  it.live("are not sent for a caller that has already left", function* () {
    const { ask, statements } = yield* pool()
    const leaving = yield* Effect.forkChild(ask(1), { startImmediately: true })
    yield* Fiber.interrupt(leaving)
    assert.strictEqual(yield* ask(2), "answer to 2")
    assert.deepStrictEqual(statements, [[2]])
  })

  it.live("are each answered at their own deadline (D11)", function* () {
    const { ask, state } = yield* pool({ deadline: 60 })
    state.held = true
    const exit = yield* Effect.exit(ask(1))
    state.held = false
    assert.isTrue(Exit.isFailure(exit) && Cause.squash(exit.cause) === "timedOut")
    assert.strictEqual(yield* ask(2), "answer to 2")
  })

  it.live("are refused if too many wait, until some are answered (D14)", function* () {
    const { ask, state } = yield* pool({ queue: 2 })
    state.held = true
    const asked = [yield* Effect.forkChild(ask(1)), yield* Effect.forkChild(ask(2))]
    yield* Effect.yieldNow
    assert.instanceOf(yield* Effect.flip(ask(3)), ServiceUnavailable)
    state.held = false
    yield* Effect.forEach(asked, Fiber.join)
    assert.strictEqual(yield* ask(4), "answer to 4")
  })
})
