import { assert } from "@effect/vitest"
import { Context, Effect, Exit, Fiber, Layer, Redacted } from "effect"
import type { SqlClient } from "effect/sql"
import { KekRegistry } from "../../src/port/KekRegistry.ts"
import * as DatabaseLive from "../../src/sql/connection/Database.ts"
import { parseDatabaseUrl } from "../../src/sql/connection/DatabaseTarget.ts"
import * as KekRegistryLive from "../../src/sql/KekRegistryLive.ts"
import { migrate } from "../../src/sql/Migrations.ts"
import { layerLive } from "../support/process/layerLive.ts"
import { eventsIn } from "../support/database/auditEntries.ts"
import { adminClient, databaseSettings, freshDatabase } from "../support/database/freshDatabase.ts"
import { holdOpen, untilWaiting } from "../support/database/transactions.ts"

class Admin extends Context.Service<Admin, SqlClient.SqlClient>()("byok/test/Admin") {}

const RegistryLive = Layer.unwrap(
  Effect.gen(function* () {
    const url = yield* freshDatabase
    const target = parseDatabaseUrl(Redacted.make(url))
    yield* migrate(target, databaseSettings)
    return Layer.mergeAll(
      KekRegistryLive.layer.pipe(Layer.provide(DatabaseLive.layer(target, databaseSettings))),
      Layer.effect(Admin, adminClient(url))
    )
  })
)

const kek = (kek_id: string, byte: number) => ({ kek_id, check_value: new Uint8Array(16).fill(byte) })

const registered = Effect.gen(function* () {
  const sql = yield* Admin
  const rows = yield* sql<{ id: string; byte: string }>`
    SELECT id, get_byte(check_value, 0)::text AS byte FROM keks ORDER BY id`
  return rows.map(({ byte, id }) => `${id}=${byte}`)
})

const uuid = (n: number) => `01935f6a-0000-7000-8000-${String(n).padStart(12, "0")}`

/** Credentials that name the given keys. */
const sealedUnder = (...kek_ids: ReadonlyArray<string>) =>
  Effect.gen(function* () {
    const sql = yield* Admin
    yield* sql`DELETE FROM credentials`
    yield* sql`INSERT INTO accounts VALUES (${uuid(1)}, 'n', now()) ON CONFLICT DO NOTHING`
    yield* sql`INSERT INTO workspaces VALUES (${uuid(2)}, ${uuid(1)}, 'n', true, now(), NULL) ON CONFLICT DO NOTHING`
    for (const [index, kek_id] of kek_ids.entries()) {
      yield* sql`INSERT INTO credentials ${sql.insert({
        id: uuid(10 + index),
        account_id: uuid(1),
        workspace_id: uuid(2),
        provider: "openai",
        label: "***...***",
        created_at: new Date(0),
        disabled: false,
        is_fallback: false,
        is_required: false,
        is_byok_only: false,
        sort_order: index,
        kek_id,
        wrapped_dek: Buffer.alloc(60),
        sealed: Buffer.alloc(63)
      })}`
    }
  })

layerLive(RegistryLive)("the registry of key-encryption keys on PostgreSQL", (it) => {
  it.effect("accepts the bytes of one instance if several register different ones under an id at once (T12)", () =>
    Effect.gen(function* () {
      const { register } = yield* KekRegistry
      for (const round of Array.from({ length: 20 }, (_, n) => `race-${n}`)) {
        const answers = yield* Effect.forEach([1, 2, 3, 4], (byte) => register([kek(round, byte)]), {
          concurrency: "unbounded"
        })
        assert.lengthOf(
          answers.filter((differing) => differing.length === 0),
          1,
          round
        )
      }
    })
  )

  it.effect("records nothing if another instance records different bytes meanwhile (T12)", () =>
    Effect.gen(function* () {
      const { register } = yield* KekRegistry
      const sql = yield* Admin
      const commit = yield* holdOpen(
        sql,
        `INSERT INTO keks (id, check_value) VALUES ('z', decode(repeat('01', 16), 'hex'))`
      )
      const loser = yield* Effect.forkChild(register([kek("beside", 9), kek("z", 9)]))
      yield* untilWaiting(sql, 1)
      yield* commit
      assert.deepStrictEqual(yield* Fiber.join(loser), ["z"])
      assert.notInclude((yield* registered).join(), "beside")
    })
  )

  it.effect("counts a row that is being inserted, and does not retire its key (T10)", () =>
    Effect.gen(function* () {
      const { known, register, retire } = yield* KekRegistry
      const sql = yield* Admin
      yield* sealedUnder("named")
      yield* register([kek("stale", 1)])
      const commit = yield* holdOpen(
        sql,
        `INSERT INTO credentials SELECT gen_random_uuid(), account_id, workspace_id, provider, name, label, created_at,
          disabled, is_fallback, is_required, is_byok_only, NULL, NULL, NULL, NULL, NULL, 7, 'stale', wrapped_dek, sealed
          FROM credentials`
      )
      const retiring = yield* Effect.forkChild(retire("stale"))
      yield* untilWaiting(sql, 1)
      const reading = yield* sql<{ n: number }>`SELECT count(*)::int AS n FROM credentials`
      assert.strictEqual(reading[0]?.n, 1, "nothing waits long behind the retirement")
      assert.isUndefined(retiring.pollUnsafe())
      yield* commit
      assert.strictEqual(yield* Fiber.join(retiring), 1)
      assert.isFalse((yield* known(["stale"]))[0]?.retired)

      yield* sql`UPDATE credentials SET kek_id = 'named' WHERE kek_id = 'stale'`
      assert.strictEqual(yield* retire("stale"), 0)
      assert.isTrue((yield* known(["stale"]))[0]?.retired)
      const back = yield* Effect.exit(sql`UPDATE credentials SET kek_id = 'stale'`)
      assert.isTrue(Exit.isFailure(back), "nor does a rewrap with an old keyring bring rows back under it")
    })
  )

  it.effect.each(["NULL", "null", "a.b-C_9"])(
    "fences off a key with the id %s that is retired twice, and records it once (T10)",
    (id) =>
      Effect.gen(function* () {
        const { register, retire } = yield* KekRegistry
        const sql = yield* Admin
        yield* sealedUnder("named")
        yield* register([kek(id, 1)])
        yield* retire(id)
        yield* retire(id)
        const back = yield* Effect.exit(sql`UPDATE credentials SET kek_id = ${id}`)
        assert.isTrue(Exit.isFailure(back))
        const retirements = (yield* eventsIn(sql)).filter(
          (event) => event.action === "keyring.retire" && event.kek_id === id
        )
        assert.lengthOf(retirements, 1)
      })
  )
})
