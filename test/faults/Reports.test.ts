import { Context, Effect, Exit, Layer, Scope } from "effect"
import type { SqlClient } from "effect/sql"
import * as Byok from "../../src/wiring/Byok.ts"
import type { Settings } from "../../src/wiring/Settings.ts"
import type { Step } from "../../src/domain/routing/Plan.ts"
import { Router } from "../../src/service/routing/Router.ts"
import { eventsIn } from "../support/database/auditEntries.ts"
import { adminClient, migratedDatabase, settingsFor } from "../support/database/freshDatabase.ts"
import { newTenant } from "../support/database/newTenant.ts"
import { lockTable } from "../support/database/transactions.ts"
import { Recording } from "../support/process/Recording.ts"
import { eventually } from "../support/process/eventually.ts"
import { create } from "../support/service/asTenant.ts"
import { planOf } from "../support/service/planning.ts"
import { assert, describe, it } from "../support/it.ts"

const count = 12

/** A service in process on a database, with keys of which each is about to be refused. */
const begin = Effect.fnUntraced(function* (url: string, database: Partial<Settings["database"]> = {}) {
  const scope = yield* Effect.acquireRelease(Scope.make(), (scope) => Scope.close(scope, Exit.void))
  const settings = settingsFor(url)
  const service = Byok.layerWith({ ...settings, database: { ...settings.database, ...database } })
  const layer = Layer.provideMerge(service, Recording.layer)
  const parts = yield* Layer.buildWithScope(Layer.fresh(layer), scope)
  const { request, steps } = yield* Effect.gen(function* () {
    const owner = yield* newTenant
    for (let n = 0; n < count; n += 1) yield* create(owner)
    return yield* planOf(owner)
  }).pipe(Effect.provideContext(parts))
  const { nextAttempt, report } = Context.get(parts, Router)
  const reportOne = Effect.fnUntraced(function* (step: Step) {
    const tested = step._tag === "Own" ? { ...request, credential_id: step.credential_id } : request
    const { attempt } = yield* nextAttempt(tested, [])
    yield* report(attempt?.lease ?? assert.fail("no lease"), { _tag: "Rejected" })
  }, Effect.scoped)
  const reportAll = Effect.forEach(steps.slice(0, count), reportOne)
  const { logs } = Context.get(parts, Recording)
  const errors = () => logs.filter(({ level }) => level === "Error").map(({ text }) => text.split("\n")[0] ?? "")
  return { reportAll, errors, stop: Scope.close(scope, Exit.void) }
})

/** How many refusals are stored, and how many events say so. */
const storedIn = Effect.fnUntraced(function* (sql: SqlClient.SqlClient) {
  const rows = yield* sql`SELECT 1 FROM credential_parkings`
  const events = yield* eventsIn(sql)
  return [rows.length, events.filter(({ action }) => action === "credential.rejected").length]
})

const untilStored = (sql: SqlClient.SqlClient) =>
  eventually("all refusals are stored", storedIn(sql), ([rows]) => rows === count)

/** Makes inserts of parkings fail with a SQLSTATE, and counts them in a sequence, which no rollback resets. */
const failWith = (sql: SqlClient.SqlClient, sqlstate: string) =>
  Effect.forEach(
    [
      "CREATE SEQUENCE failures",
      `CREATE FUNCTION fail() RETURNS trigger LANGUAGE plpgsql AS
        $$ BEGIN PERFORM nextval('failures'); RAISE EXCEPTION 'canary' USING ERRCODE = '${sqlstate}'; END $$`,
      "CREATE TRIGGER fail BEFORE INSERT ON credential_parkings FOR EACH STATEMENT EXECUTE FUNCTION fail()"
    ],
    (statement) => sql.unsafe(statement)
  )

const untilFailed = (sql: SqlClient.SqlClient, times: number) =>
  eventually(
    `storing fails ${times} times`,
    sql<{ n: number }>`SELECT CASE WHEN is_called THEN last_value::int ELSE 0 END AS n FROM failures`,
    ([row]) => (row?.n ?? 0) >= times
  )

describe("acknowledged reports", () => {
  it.live.each([
    ["the disk is full", "53100"],
    ["connections are exhausted", "53300"],
    ["an object is not in the required state", "55000"],
    ["PostgreSQL fails with an internal error", "XX000"]
  ] as const)("are all stored once storing no longer fails because %s (%s)", function* ([, sqlstate]) {
    const url = yield* migratedDatabase
    const sql = yield* adminClient(url)
    const { errors, reportAll } = yield* begin(url)
    yield* failWith(sql, sqlstate)
    yield* reportAll
    yield* untilFailed(sql, 2)
    assert.deepStrictEqual(yield* storedIn(sql), [0, 0])
    yield* sql`DROP TRIGGER fail ON credential_parkings`
    yield* untilStored(sql)
    assert.deepStrictEqual(yield* storedIn(sql), [count, count])
    assert.deepStrictEqual(errors(), [])
  })

  it.live("are dropped and logged one by one if a constraint refuses them (control)", function* () {
    const url = yield* migratedDatabase
    const sql = yield* adminClient(url)
    const { errors, reportAll } = yield* begin(url)
    yield* failWith(sql, "23514")
    yield* reportAll
    yield* eventually("each was dropped", () => errors().length === count)
    yield* sql`DROP TRIGGER fail ON credential_parkings`
    yield* Effect.sleep("2 seconds")
    assert.deepStrictEqual(yield* storedIn(sql), [0, 0])
    assert.include(errors()[0], "The health of keys cannot be stored, and one change was lost: ")
  })
})

describe("acknowledged reports of a service that stops", () => {
  it.live("are counted in an error if the table is locked for longer than DATABASE_DEADLINE", function* () {
    const url = yield* migratedDatabase
    const sql = yield* adminClient(url)
    const { errors, reportAll, stop } = yield* begin(url)
    const unlock = yield* lockTable(sql, "credential_parkings")
    yield* reportAll
    // They share the connection with the health of keys, for which the stop waits in vain.
    const uses = Effect.map(sql`SELECT 1 FROM credential_use`, ({ length }) => length)
    yield* eventually("the last uses are stored", uses, (stored) => stored === count)
    const began = performance.now()
    yield* stop
    const took = performance.now() - began
    yield* unlock
    assert.isBelow(took, 10_000)
    assert.deepStrictEqual(yield* storedIn(sql), [0, 0])
    assert.lengthOf(errors(), 1)
    assert.include(errors()[0], `The health of keys: ${count} changes were not stored before the stop`)
  })
})
