import { Effect, Fiber } from "effect"
import { minimal } from "../support/http/Bodies.ts"
import { createOver, getOver, idIn } from "../support/http/callByok.ts"
import { embeddedClient, firstStart, newDirectory } from "../support/process/firstStart.ts"
import { eventually } from "../support/process/eventually.ts"
import { assert, describe, it } from "../support/it.ts"

const internalError = { status: 500, body: '{"error":{"code":500,"message":"Internal Server Error"}}' }

describe("while the synchronous standby is away", () => {
  it.live("create fails with 500, even if its wait is cancelled or its session ends; get succeeds (R6)", function* () {
    const settings = yield* newDirectory
    const { key, stderr, url } = yield* firstStart(settings)
    const create = createOver(url, key, minimal)
    const first = yield* create
    assert.strictEqual(first.status, 201)

    const sql = yield* embeddedClient(settings)
    const waiting = Effect.map(
      sql<{ pid: number }>`SELECT pid FROM pg_stat_activity WHERE wait_event = 'SyncRep' ORDER BY pid`,
      (rows) => rows.map(({ pid }) => pid)
    )
    const untilWaiting = (count: number) =>
      eventually(
        `${count} commits wait for the standby`,
        Effect.map(waiting, (pids) => pids.length === count)
      )
    yield* sql`ALTER SYSTEM SET synchronous_standby_names = 'nobody'`
    yield* sql`SELECT pg_reload_conf()`
    yield* eventually(
      "the standby is wanted",
      Effect.map(
        sql<{ names: string }>`SELECT current_setting('synchronous_standby_names') AS names`,
        ([row]) => row?.names === "nobody"
      )
    )

    const toCancel = yield* Effect.forkChild(create)
    yield* untilWaiting(1)
    yield* sql`SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE wait_event = 'SyncRep'`
    assert.deepStrictEqual(yield* Fiber.join(toCancel), internalError)
    yield* eventually("the outcome is logged as unknown", () => stderr().includes("UnknownOutcome 01000"))

    // Of another pool: writes of one pool come one after the other.
    const elsewhere = createOver(url, key, { ...minimal, provider: "xai" })
    const [left, toEnd] = [yield* Effect.forkChild(create), yield* Effect.forkChild(elsewhere)]
    yield* untilWaiting(2)
    const [pid = 0] = yield* waiting
    yield* sql`SELECT pg_terminate_backend(${pid})`
    yield* eventually(
      "the insert was tried again, found its row, and waits again",
      Effect.map(waiting, (pids) => pids.length === 2 && !pids.includes(pid))
    )
    assert.deepStrictEqual(yield* getOver(url, key, idIn(first)), { status: 200, body: first.body })
    for (const create of [left, toEnd]) assert.deepStrictEqual(yield* Fiber.join(create), internalError)

    yield* sql`ALTER SYSTEM RESET synchronous_standby_names`
    yield* sql`SELECT pg_reload_conf()`
    yield* untilWaiting(0)
    assert.strictEqual((yield* create).status, 201)
  })
})
