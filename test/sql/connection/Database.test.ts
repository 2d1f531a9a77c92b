import { Cause, Context, Duration, Effect, Exit, Fiber, Layer } from "effect"
import { ServiceUnavailable } from "../../../src/domain/Errors.ts"
import * as DatabaseLive from "../../../src/sql/connection/Database.ts"
import { Database, type DatabaseSettings } from "../../../src/sql/connection/Database.ts"
import type { ConnectionPool } from "../../../src/sql/connection/ConnectionPool.ts"
import { DatabaseFailure } from "../../../src/port/DatabaseFailure.ts"
import { databaseProxy } from "../../support/database/DatabaseProxy.ts"
import { eventually } from "../../support/process/eventually.ts"
import { adminClient, databaseSettings, freshDatabase } from "../../support/database/freshDatabase.ts"
import { lockTable, untilWaiting, waitingForLock } from "../../support/database/transactions.ts"
import { assert, describe, it } from "../../support/it.ts"

const longDeadline: DatabaseSettings = {
  ...databaseSettings,
  statementTimeout: Duration.seconds(25),
  deadline: Duration.seconds(28)
}
const shortDeadline: DatabaseSettings = { ...longDeadline, deadline: Duration.millis(300) }

/** Both pools on a database of their own with a table `t (id)`, and what a test needs to interfere. */
const open = (settings: DatabaseSettings) =>
  Effect.gen(function* () {
    const url = yield* freshDatabase
    const admin = yield* adminClient(url)
    yield* admin`CREATE TABLE t (id int PRIMARY KEY)`
    const proxy = yield* databaseProxy(url)
    const { reads, writes } = Context.get(yield* Layer.build(DatabaseLive.layer(proxy.target, settings)), Database)
    const insert = (id: number) => writes.sql`INSERT INTO t VALUES (${id}) ON CONFLICT DO NOTHING`
    const one = (pool: ConnectionPool) =>
      Effect.map(pool.ask(pool.sql<{ one: number }>`SELECT 1 AS one`, "tests.ask"), (rows) => rows[0]?.one)
    const stored = Effect.map(admin<{ id: number }>`SELECT id FROM t ORDER BY id`, (rows) => rows.map(({ id }) => id))
    return { admin, insert, one, proxy, reads, stored, writes }
  })

const failureIn = (exit: Exit.Exit<unknown, unknown>): unknown => {
  assert(Exit.isFailure(exit))
  return Cause.squash(exit.cause)
}

describe("a statement and its caller", () => {
  it.live("the caller is answered at the deadline, and the statement is not cancelled (D11, R6)", function* () {
    const { admin, insert, proxy, stored, writes } = yield* open(shortDeadline)
    const unlock = yield* lockTable(admin, "t")
    const failure = failureIn(yield* Effect.exit(writes.ask(insert(1), "tests.ask")))
    assert.deepStrictEqual(
      failure,
      new DatabaseFailure({ kind: "Deadline", sqlstate: undefined, constraint: undefined })
    )
    yield* untilWaiting(admin, 1)
    yield* unlock
    yield* eventually(
      "it is committed",
      Effect.map(stored, (ids) => ids.includes(1))
    )
    assert.strictEqual(proxy.cancels(), 0)
  })

  it.live("an interrupted caller is released at once, and the statement is not cancelled", function* () {
    const { admin, insert, proxy, stored, writes } = yield* open(longDeadline)
    const unlock = yield* lockTable(admin, "t")
    const caller = yield* Effect.forkChild(writes.ask(insert(1), "tests.ask"))
    yield* untilWaiting(admin, 1)
    yield* Fiber.interrupt(caller)
    assert.strictEqual(yield* waitingForLock(admin), 1)
    yield* unlock
    yield* eventually(
      "it is committed",
      Effect.map(stored, (ids) => ids.includes(1))
    )
    assert.strictEqual(proxy.cancels(), 0)
  })

  it.live("without the pool, interrupting the caller cancels the statement (control)", function* () {
    const { admin, insert, proxy, stored } = yield* open(longDeadline)
    const unlock = yield* lockTable(admin, "t")
    const caller = yield* Effect.forkChild(insert(1))
    yield* untilWaiting(admin, 1)
    yield* Fiber.interrupt(caller)
    yield* untilWaiting(admin, 0)
    yield* unlock
    assert.strictEqual(proxy.cancels(), 1)
    assert.deepStrictEqual(yield* stored, [])
  })

  it.live("PostgreSQL ends a statement at the statement timeout, and the failure says so", function* () {
    const { reads } = yield* open({ ...longDeadline, statementTimeout: Duration.millis(50) })
    const failure = failureIn(yield* Effect.exit(reads.ask(reads.sql`SELECT pg_sleep(20)`, "tests.ask")))
    assert.deepInclude(failure, { kind: "StatementTimeoutError", sqlstate: "57014" })
  })

  it.live.each<readonly [pooler: boolean, timeout: string]>([
    [false, "25s"],
    [true, "0"]
  ])("with DATABASE_POOLER=%s, a session has a statement timeout of %s", function* ([pooler, timeout]) {
    const { reads } = yield* open({ ...longDeadline, pooler })
    const rows = yield* reads.ask(reads.sql`SELECT current_setting('statement_timeout') AS timeout`, "tests.ask")
    assert.strictEqual(rows[0]?.["timeout"], timeout)
  })
})

describe("separate pools for reads and writes", () => {
  it.live("reads continue while every connection for writes waits for a lock (R5)", function* () {
    const { admin, insert, one, reads, stored, writes } = yield* open(longDeadline)
    const unlock = yield* lockTable(admin, "t")
    const ids = Array.from({ length: longDeadline.poolSize + 3 }, (_, id) => id)
    const writers = yield* Effect.forkChild(
      Effect.forEach(ids, (id) => writes.ask(insert(id), "tests.ask", `${id}`), { concurrency: "unbounded" })
    )
    yield* untilWaiting(admin, longDeadline.poolSize)
    assert.strictEqual(yield* one(reads), 1)
    const late = yield* Effect.forkChild(one(writes))
    assert.strictEqual(yield* one(reads), 1)
    assert.isUndefined(late.pollUnsafe(), "the same question in the pool of the writes has to wait (control)")
    yield* unlock
    yield* Fiber.join(writers)
    assert.strictEqual(yield* Fiber.join(late), 1)
    assert.deepStrictEqual(yield* stored, ids)
  })

  it.live("an abandoned statement keeps its place in the queue of its own pool until it ends (D14)", function* () {
    const { admin, insert, one, reads, stored, writes } = yield* open({ ...shortDeadline, poolSize: 2, queue: 2 })
    const unlock = yield* lockTable(admin, "t")
    yield* Effect.forEach([1, 2], (id) => Effect.exit(writes.ask(insert(id), "tests.ask", `${id}`)), {
      concurrency: "unbounded"
    })
    assert.instanceOf(failureIn(yield* Effect.exit(one(writes))), ServiceUnavailable)
    assert.strictEqual(yield* one(reads), 1)
    yield* unlock
    yield* eventually(
      "both are committed",
      Effect.map(stored, (ids) => ids.length === 2)
    )
    yield* eventually("there is room again", Effect.map(Effect.exit(one(writes)), Exit.isSuccess))
  })
})

describe("the loss of connections", () => {
  it.live("is not noticed by callers, even if all idle connections are lost at once (R3)", function* () {
    const { admin, one, reads } = yield* open(longDeadline)
    const everyConnection = Effect.forEach(
      Array.from({ length: longDeadline.poolSize }),
      () => reads.ask(reads.sql`SELECT pg_sleep(0.05)`, "tests.ask"),
      { concurrency: "unbounded" }
    )
    yield* everyConnection
    yield* admin`
        SELECT pg_terminate_backend(pid) FROM pg_stat_activity
        WHERE datname = current_database() AND pid <> pg_backend_pid()`
    const answers = yield* Effect.forEach(Array.from({ length: 20 }), () => one(reads), { concurrency: "unbounded" })
    assert.deepStrictEqual(new Set(answers), new Set([1]))
  })
})

describe("a connection", () => {
  const session = (pool: ConnectionPool) =>
    Effect.map(pool.ask(pool.sql<{ pid: number }>`SELECT pg_backend_pid() AS pid`, "tests.ask"), ([row]) => row?.pid)

  it.live("that became read-only is replaced, and the write succeeds on the next one (F2)", function* () {
    const { insert, stored, writes } = yield* open({ ...longDeadline, poolSize: 1 })
    const before = yield* session(writes)
    yield* writes.ask(writes.sql`SET default_transaction_read_only = on`, "tests.ask")
    yield* writes.ask(insert(1), "tests.ask")
    assert.deepStrictEqual(yield* stored, [1])
    assert.notStrictEqual(yield* session(writes), before)
  })

  it.live("is replaced at its maximum age, but neither before nor within a transaction (F2)", function* () {
    const { stored, writes } = yield* open({ ...longDeadline, poolSize: 1, maxAge: Duration.millis(300) })
    const { writes: young } = yield* open({ ...longDeadline, poolSize: 1, maxAge: Duration.minutes(10) })
    const { sql } = writes
    const [before, youngBefore] = [yield* session(writes), yield* session(young)]
    yield* eventually(
      "another connection",
      Effect.map(session(writes), (pid) => pid !== before)
    )
    const waits = Effect.gen(function* () {
      yield* sql`INSERT INTO t VALUES (1)`
      yield* Effect.sleep("500 millis")
      yield* sql`INSERT INTO t VALUES (2)`
    })
    yield* writes.ask(sql.withTransaction(waits), "tests.ask")
    assert.deepStrictEqual(yield* stored, [1, 2])
    assert.strictEqual(yield* session(young), youngBefore, "control: it is younger")
  })
})

describe("bytes that the driver has read", () => {
  it.live("keep no other received bytes in memory", function* () {
    const { reads } = yield* open(longDeadline)
    const rows = yield* reads.sql<{ bytes: Uint8Array }>`
      SELECT decode(repeat('ab', 20), 'hex') AS bytes FROM generate_series(1, 100)`
    assert.deepStrictEqual(
      rows.map(({ bytes }) => [Buffer.from(bytes).toString("hex"), bytes.buffer.byteLength]),
      rows.map(() => ["ab".repeat(20), 20])
    )
  })
})
