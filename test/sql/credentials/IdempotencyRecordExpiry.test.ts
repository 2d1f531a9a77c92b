import { Clock, Context, Duration, Effect, Layer } from "effect"
import * as Byok from "../../../src/wiring/Byok.ts"
import { IdempotencyKey } from "../../../src/domain/Identifiers.ts"
import { Accounts } from "../../../src/service/accounts/Accounts.ts"
import { IdempotencyRecords } from "../../../src/port/IdempotencyRecords.ts"
import * as Idempotency from "../../../src/service/credentials/Idempotency.ts"
import { clockAhead } from "../../support/process/clockAhead.ts"
import { eventually } from "../../support/process/eventually.ts"
import { adminClient, migratedDatabase, settingsFor } from "../../support/database/freshDatabase.ts"
import { changing, createOnce } from "../../support/service/asTenant.ts"
import { assert, describe, it } from "../../support/it.ts"

/** A service on a database of its own, and creates of one account under a key. */
const open = Effect.gen(function* () {
  const url = yield* migratedDatabase
  const service = Byok.layerWith(settingsFor(url))
  const instance = yield* Layer.build(service)
  const { account_id } = yield* Context.get(instance, Accounts).createAccount("n")
  const create = (key: string) => Effect.provide(createOnce({ account_id }, {}, IdempotencyKey.make(key)), instance)
  return { create, instance, service, sql: yield* adminClient(url) }
})

describe("old idempotency records on PostgreSQL (SECURITY.md, Idempotency records)", () => {
  it.live("expire by the database's clock, not an instance's (F8)", function* () {
    const { create, instance, sql } = yield* open
    const clock = yield* clockAhead("26 hours")
    yield* create("right")
    yield* Effect.provideService(create("ahead"), Clock.Clock, clock)
    const ages = yield* sql<{ old: boolean }>`
        SELECT abs(extract(epoch FROM now() - created_at)) > 60 AS old FROM idempotency_records`
    assert.deepStrictEqual(
      ages.map(({ old }) => old),
      [false, false]
    )

    let searched = 0
    const watched = changing(IdempotencyRecords, (records) => ({
      ...records,
      deleteOlderThan: (...given) =>
        Effect.tap(records.deleteOlderThan(...given), () => Effect.sync(() => (searched += 1)))
    }))
    yield* Layer.build(Idempotency.expiryEvery("20 millis").pipe(Layer.provide(watched))).pipe(
      Effect.provide(instance),
      Effect.provideService(Clock.Clock, clock)
    )
    yield* eventually("old idempotency records were looked for", () => searched >= 2)
    assert.lengthOf(yield* sql`SELECT 1 FROM idempotency_records`, 2)
  })

  it.live("are removed by the service, and replay the first answer until then", function* () {
    const { create, service, sql } = yield* open
    const replayed = (key: string) => Effect.map(create(key), (answer) => answer.replayed)
    const { id } = (yield* create("old")).credential
    yield* create("young")
    yield* sql`UPDATE idempotency_records SET created_at = created_at - interval '23 hours'`
    assert.isTrue(yield* replayed("old"))
    yield* sql`
        UPDATE idempotency_records SET created_at = created_at - interval '3 hours'
        WHERE credential_id = ${id}`
    assert.isTrue(yield* replayed("old"))

    const clock = yield* Clock.Clock
    const sleep = (duration: Duration.Duration) =>
      clock.sleep(Duration.isLessThan(duration, Duration.minutes(1)) ? duration : Duration.millis(20))
    const hasty = Object.create(clock, { sleep: { value: sleep } }) as Clock.Clock
    yield* Effect.provideService(Layer.build(Layer.fresh(service)), Clock.Clock, hasty)
    const left = Effect.map(sql`SELECT 1 FROM idempotency_records`, (rows) => rows.length)
    yield* eventually(
      "the old idempotency record is gone",
      Effect.map(left, (n) => n === 1)
    )
    assert.deepStrictEqual([yield* replayed("young"), yield* replayed("old")], [true, false])
  })

  it.live("are removed in batches of limited size", function* () {
    const { create, instance, sql } = yield* open
    for (const key of ["one", "another"]) yield* create(key)
    assert.strictEqual(yield* Context.get(instance, IdempotencyRecords).deleteOlderThan(Duration.zero, 1), 1)
    assert.lengthOf(yield* sql`SELECT 1 FROM idempotency_records`, 1)
  })
})
