import { Cause, Duration, Effect, Exit, Fiber, Option, Scope, type Tracer } from "effect"
import { ServiceUnavailable } from "../../../src/domain/Errors.ts"
import { makePoolMeter } from "../../../src/sql/connection/PoolMeter.ts"
import { makeBatching } from "../../../src/sql/connection/Batching.ts"
import { DatabaseFailure } from "../../../src/port/DatabaseFailure.ts"
import type { Query } from "../../../src/sql/connection/Query.ts"
import { vi } from "vitest"
import { CurrentDeadline } from "../../../src/runtime/Deadline.ts"
import { tracerTo } from "../../support/process/Recording.ts"
import { eventually } from "../../support/process/eventually.ts"
import { assert, describe, it } from "../../support/it.ts"

const timedOut = Exit.die("timedOut")
const gone = new DatabaseFailure({ kind: "ConnectionError", sqlstate: undefined, constraint: undefined })

/** A request for which building a shared statement throws. */
const unwritable = -1

/** A pool that records its statements, delays them while `held`, and lets them fail by `failing`. */
const pool = Effect.fnUntraced(function* (options: { readonly queue?: number; readonly deadline?: number } = {}) {
  const statements: Array<ReadonlyArray<number>> = []
  /** The time until which each statement is retried. */
  const untils: Array<() => number> = []
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
    }).pipe(Effect.withSpan("sql.execute"))
  const batch = yield* makeBatching({
    deadline: Duration.millis(options.deadline ?? 20_000),
    maxWaiting: options.queue ?? 1000,
    timedOut,
    meter: yield* makePoolMeter("reads"),
    retrying: <A>(asked: Query<A>, until: () => number) => {
      untils.push(until)
      return asked as unknown as Effect.Effect<A, DatabaseFailure>
    }
  })
  const ask = batch<number, string>({
    operation: "tests.ask",
    one: (asked) => Effect.map(query([asked]), ([answer = ""]) => answer),
    many: (asked) => {
      if (asked.includes(unwritable)) throw new RangeError("Invalid string length")
      return query(asked)
    }
  })
  return { ask, state, statements, untils }
})

const turnOver = Effect.promise(() => new Promise((resolve) => setImmediate(() => setImmediate(resolve))))

const leave = <A, E>(caller: Fiber.Fiber<A, E>) => Effect.forkChild(Fiber.interrupt(caller), { startImmediately: true })

const all = <A, E>(effects: ReadonlyArray<Effect.Effect<A, E>>) => Effect.all(effects, { concurrency: "unbounded" })

describe("look-ups", () => {
  it.live("share an SQL statement if they are concurrent, and each gets its own answer", function* () {
    const { ask, statements } = yield* pool()
    const answers = yield* all([3, 1, 2].map(ask))
    assert.deepStrictEqual(answers, ["answer to 3", "answer to 1", "answer to 2"])
    assert.deepStrictEqual(statements, [[3, 1, 2]])
  })

  it.live("have their own statement if they arrive one by one", function* () {
    const { ask, statements } = yield* pool()
    yield* ask(1)
    assert.strictEqual(yield* ask(unwritable), "answer to -1", "in the statement for one")
    assert.deepStrictEqual(statements, [[1], [unwritable]])
  })

  it.live("are sent at once if the last statement had one request, and together if it had several", function* () {
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
    const asked: Array<Fiber.Fiber<string, ServiceUnavailable | DatabaseFailure>> = []
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

  it.live("fail together if their shared statement loses its connection, and are not repeated", function* () {
    const { ask, state, statements } = yield* pool()
    state.failing = () => gone
    const failures = yield* all([1, 2].map((asked) => Effect.flip(ask(asked))))
    assert.deepStrictEqual(failures, [gone, gone])
    assert.deepStrictEqual(statements, [[1, 2]])
  })

  it.live("all fail if building their shared statement throws, and later requests succeed", function* () {
    const { ask } = yield* pool()
    const exits = yield* all([1, unwritable, 2].map((asked) => Effect.exit(ask(asked))))
    for (const exit of exits) assert.isTrue(Exit.isFailure(exit) && Cause.squash(exit.cause) instanceof RangeError)
    assert.strictEqual(yield* ask(3), "answer to 3")
  })

  it.live("continue if the caller of another request in their statement is interrupted", function* () {
    const { ask, state, statements } = yield* pool()
    state.held = true
    const [leaving, staying] = [yield* Effect.forkChild(ask(1)), yield* Effect.forkChild(ask(2))]
    yield* eventually("they are in progress", () => statements.length === 1)
    const left = yield* leave(leaving)
    state.held = false
    assert.strictEqual(yield* Fiber.join(staying), "answer to 2")
    yield* Fiber.join(left)
  })

  it.live("are not sent if their caller was interrupted before", function* () {
    const { ask, statements } = yield* pool()
    const leaving = yield* Effect.forkChild(ask(1), { startImmediately: true })
    yield* Fiber.interrupt(leaving)
    assert.strictEqual(yield* ask(2), "answer to 2")
    assert.deepStrictEqual(statements, [[2]])
  })

  it.live("time out individually, each at its own deadline (D11)", function* () {
    const { ask, state, statements } = yield* pool({ deadline: 60 })
    state.held = true
    const asked: Array<Fiber.Fiber<string, ServiceUnavailable | DatabaseFailure>> = []
    for (const one of [1, 2, 3]) {
      asked.push(yield* Effect.forkChild(ask(one), { startImmediately: true }))
      yield* turnOver
    }
    for (const exit of yield* Fiber.awaitAll(asked)) {
      assert.isTrue(Exit.isFailure(exit) && Cause.squash(exit.cause) === "timedOut")
    }
    assert.deepStrictEqual(statements, [[1], [2]], "one was not sent")
    state.held = false
    assert.strictEqual(yield* ask(4), "answer to 4")
  })

  it.live("do not end at the deadline of another request that shares their statement (D11)", function* () {
    const { ask, state } = yield* pool()
    state.held = true
    const exits = yield* Effect.forkChild(all([within(30)(ask(1)), ask(2)].map(Effect.exit)), {
      startImmediately: true
    })
    yield* Effect.exit(within(60)(ask(3)))
    state.held = false
    assert.deepStrictEqual(yield* Fiber.join(exits), [timedOut, Exit.succeed("answer to 2")])
  })
})

const within = (millis: number) => Effect.provideService(CurrentDeadline, { until: performance.now() + millis })

describe("a batch", () => {
  it.live("is retried until the latest deadline of the callers that still wait", function* () {
    const { ask, state, untils } = yield* pool({ deadline: 5_000 })
    state.held = true
    const began = performance.now()
    const callers = yield* Effect.forEach(
      [within(1_000)(ask(1)), ask(2), within(3_000)(ask(3)), within(60_000)(ask(4))],
      (asked) => Effect.forkChild(asked)
    )
    yield* eventually("it is in progress", () => untils.length === 1)
    const lasts: Array<number> = []
    for (const index of [3, 1, 2, 0]) {
      lasts.push(Math.floor(((untils[0]?.() ?? 0) - began) / 1_000))
      const caller = callers[index]
      if (caller !== undefined) yield* leave(caller)
    }
    assert.deepStrictEqual(lasts, [5, 5, 3, 1])
    assert.strictEqual(untils[0]?.(), 0)
    const alone = yield* Effect.forkChild(within(2_000)(ask(5)))
    yield* eventually("a single request is in progress", () => untils.length === 2)
    assert.strictEqual(Math.floor(((untils[1]?.() ?? 0) - began) / 1_000), 2)
    state.held = false
    yield* Fiber.join(alone)
  })

  it.live("omits a request whose deadline has passed, whether or not others wait", function* () {
    const { ask, state, statements } = yield* pool({ queue: 1 })
    state.held = true
    const late = Effect.flip(Effect.sandbox(within(-1)(ask(1))))
    assert.strictEqual(Cause.squash(yield* late), "timedOut")
    assert.lengthOf(statements, 0)
    const waiting = yield* Effect.forkChild(ask(2), { startImmediately: true })
    assert.strictEqual(Cause.squash(yield* late), "timedOut")
    assert.instanceOf(yield* Effect.flip(ask(3)), ServiceUnavailable)
    yield* Fiber.interrupt(waiting)
    state.held = false
    assert.strictEqual(yield* ask(4), "answer to 4", "who has left makes room")
  })

  it.live("has its deadlines checked by one timer of its pool, until the pool's scope closes", function* () {
    vi.useFakeTimers({ toFake: ["setInterval", "clearInterval"] })
    const scope = yield* Scope.make()
    yield* Scope.provide(pool(), scope)
    assert.strictEqual(vi.getTimerCount(), 1)
    yield* Scope.close(scope, Exit.void)
    assert.strictEqual(vi.getTimerCount(), 0)
    vi.useRealTimers()
  })

  it.live(
    "of several requests has a span to which theirs link; that of one request is a child of its span",
    function* () {
      const begun: Array<Tracer.Span & { readonly kind: string }> = []
      const tracer = tracerTo(
        () => {},
        (span) => {
          if (span.sampled) begun.push(span)
        }
      )
      const root = (effect: Effect.Effect<unknown, ServiceUnavailable | DatabaseFailure>) =>
        Effect.gen(function* () {
          begun.length = 0
          yield* Effect.exit(effect).pipe(Effect.withSpan("root"), Effect.withTracer(tracer))
          const indexOf = ({ spanId }: Pick<Tracer.AnySpan, "spanId">) =>
            begun.findIndex((span) => span.spanId === spanId)
          return begun.map(({ attributes, kind, links, name, parent, status }) => [
            `${name} ${kind}`,
            Option.match(parent, { onNone: () => "none", onSome: indexOf }),
            links.map(({ span }) => indexOf(span)),
            attributes.get("db.operation.batch.size"),
            status._tag === "Ended" && status.exit._tag
          ])
        })
      const top = ["root internal", "none", [], undefined, "Success"]
      const { ask, state } = yield* pool().pipe(Effect.withTracer(tracer))
      const three = all([1, 2, 3].map((one) => Effect.exit(ask(one))))
      assert.deepStrictEqual(yield* root(three), [
        top,
        ...[1, 2, 3].map(() => ["tests.ask internal", 0, [4], undefined, "Success"]),
        ["tests.ask client", "none", [], 3, "Success"]
      ])
      state.failing = () => gone
      assert.deepStrictEqual(yield* root(three), [
        top,
        ...[1, 2, 3].map(() => ["tests.ask internal", 0, [4], undefined, "Failure"]),
        ["tests.ask client", "none", [], 3, "Failure"]
      ])
      state.failing = () => undefined
      assert.deepStrictEqual(yield* root(ask(1)), [
        top,
        ["tests.ask internal", 0, [], undefined, "Success"],
        ["tests.ask client", 1, [], undefined, "Success"]
      ])
      state.held = true
      const leaving = Effect.gen(function* () {
        const caller = yield* Effect.forkChild(ask(1), { startImmediately: true })
        yield* Effect.yieldNow
        yield* Fiber.interrupt(caller)
      })
      assert.deepStrictEqual((yield* root(leaving))[1], ["tests.ask internal", 0, [], undefined, "Failure"])
      state.held = false
      assert.deepStrictEqual(
        yield* Effect.andThen(
          ask(1),
          Effect.sync(() => begun.length)
        ),
        3,
        "none without a trace"
      )
    }
  )
})
