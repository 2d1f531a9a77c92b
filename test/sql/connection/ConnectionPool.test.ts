import { Duration, Effect, Fiber, Schedule, Scheduler } from "effect"
import type { SqlClient } from "effect/sql"
import { makeConnectionPool } from "../../../src/sql/connection/ConnectionPool.ts"
import { makePoolMeter } from "../../../src/sql/connection/PoolMeter.ts"
import type { Query } from "../../../src/sql/connection/Query.ts"
import { withDeadline } from "../../../src/runtime/Deadline.ts"
import { eventually } from "../../support/process/eventually.ts"
import { stopMonotonicClock } from "../../support/process/stopMonotonicClock.ts"
import { assert, describe, it } from "../../support/it.ts"

/** A pool of four connections, one of them for look-ups and one for plans, whose queries run while `held`. */
const open = (queue = 1000) =>
  Effect.gen(function* () {
    const sent: Array<string> = []
    const state = { held: true }
    const free = Effect.orDie(eventually("it may go on", () => !state.held))
    const query = (name: string, held = true): Query<string> =>
      Effect.suspend(() => {
        sent.push(name)
        return Effect.as(held ? free : Effect.void, name)
      })
    const pool = yield* makeConnectionPool(undefined as unknown as SqlClient.SqlClient, {
      deadline: Duration.seconds(20),
      maxWaiting: queue,
      poolSize: 4,
      reserved: 1,
      distributed: false,
      unreplicated: () => 0,
      meter: yield* makePoolMeter("reads")
    })
    return { pool, query, sent, state }
  })

describe("a pool of connections", () => {
  it.live("sends no query whose deadline passed before it had a connection", function* () {
    const { pool, query, sent, state } = yield* open()
    const advance = yield* stopMonotonicClock
    for (const name of ["first", "second"]) yield* Effect.forkChild(pool.ask(query(name), "tests.ask", name))
    yield* eventually("they have the connections", () => sent.length === 2)
    const late = yield* Effect.forkChild(Effect.exit(pool.ask(query("late"), "tests.ask")))
    yield* Effect.yieldNow
    advance(20_001)
    const inTime = yield* Effect.forkChild(pool.ask(query("in time"), "tests.ask"))
    state.held = false
    assert.strictEqual(yield* Fiber.join(inTime), "in time")
    assert.strictEqual((yield* Fiber.join(late))._tag, "Failure")
    assert.deepStrictEqual(sent, ["first", "second", "in time"])
  })

  it.live("frees the place of an interrupted query in the queue, wherever it was interrupted", function* () {
    const { pool, query } = yield* open(1)
    for (let operations = 2; operations < 20; operations += 1) {
      const asked = pool.ask(query("left", false), "tests.ask")
      const asking = Effect.provideService(asked, Scheduler.MaxOpsBeforeYield, operations)
      yield* Fiber.interrupt(yield* Effect.forkChild(asking, { startImmediately: true }))
      const next = Effect.retry(pool.ask(query("next", false), "tests.ask"), {
        times: 400,
        schedule: Schedule.spaced("5 millis")
      })
      assert.strictEqual(yield* next, "next", `after ${operations} operations`)
    }
  })

  it.live("ends an interrupted request with its query, or at once if it has no connection yet", function* () {
    const { pool, query, sent, state } = yield* open()
    const request = (name: string) =>
      Effect.forkChild(withDeadline(Duration.seconds(20))(pool.ask(query(name), "tests.ask", name)))
    const running = [yield* request("first"), yield* request("second")]
    yield* eventually("they have the connections", () => sent.length === 2)
    const waiting = yield* request("third")
    yield* Effect.yieldNow
    const left = yield* Effect.forkChild(Fiber.interruptAll(running), { startImmediately: true })
    yield* Fiber.interrupt(waiting)
    assert.strictEqual(left.pollUnsafe(), undefined)
    state.held = false
    yield* Fiber.join(left)
    assert.deepStrictEqual(sent, ["first", "second"])
  })

  it.live("keeps a connection for look-ups, however many long queries wait", function* () {
    const { pool, query, sent, state } = yield* open()
    const lists = Array.from({ length: 900 }, (_, n) => pool.ask(query(`list ${n}`), "tests.list", `${n % 9}`))
    const listing = yield* Effect.forkChild(Effect.all(lists, { concurrency: "unbounded" }))
    yield* eventually("they have what connections they may have", () => sent.length === 2)
    const find = pool.batch<string, string>({
      operation: "tests.find",
      one: (name) => query(name, false),
      many: (names) => Effect.as(query("many", false), names)
    })
    assert.strictEqual(yield* find("key"), "key")
    assert.strictEqual(sent.length, 3)
    state.held = false
    yield* Fiber.join(listing)
  })

  it.live("leaves a connection to others while an account's queries stall, and keeps one for plans", function* () {
    const { pool, query, sent, state } = yield* open()
    const lists = Array.from({ length: 40 }, (_, n) => pool.ask(query(`list ${n}`), "tests.list", "noisy"))
    const listing = yield* Effect.forkChild(Effect.all(lists, { concurrency: "unbounded" }))
    yield* eventually("they have the connections that they may have", () => sent.length === 1)
    assert.strictEqual(yield* pool.ask(query("list", false), "tests.list", "quiet"), "list")
    const stalled = yield* Effect.forkChild(pool.ask(query("list"), "tests.list", "another"))
    yield* eventually("lists have all connections that lists may have", () => sent.length === 3)
    assert.strictEqual(yield* pool.askForPlan(query("plan", false), "tests.plan", "quiet"), "plan")
    const asking = yield* Effect.forkChild(pool.ask(query("quiet", false), "tests.list", "quiet"))
    yield* Effect.yieldNow
    state.held = false
    yield* Fiber.join(asking)
    assert.include(sent.slice(0, 7), "quiet", "it waits for no more than one query of each other account")
    yield* Fiber.joinAll([listing, stalled])
  })

  it.live("runs the query of an account between the plans of others that never cease", function* () {
    const { pool, query, sent } = yield* open()
    const plan = (account: string) =>
      pool.askForPlan(Effect.delay(query("plan", false), "1 millis"), "tests.plan", account)
    const plans = Array.from({ length: 6 }, (_, n) => Effect.forever(plan(`noisy ${n}`)))
    const planning = yield* Effect.forkChild(Effect.all(plans, { concurrency: "unbounded" }))
    yield* eventually("they have all connections that they may have", () => sent.length > 12)
    const before = sent.length
    yield* Effect.timeout(pool.ask(query("list", false), "tests.list", "quiet"), "2 seconds")
    assert.isAtMost(sent.indexOf("list") - before, 12)
    yield* Fiber.interrupt(planning)
  })
})
