import { assert, describe, it } from "@effect/vitest"
import { Effect, Redacted } from "effect"
import { parseDatabaseUrl } from "../../src/sql/connection/DatabaseTarget.ts"
import { migrate } from "../../src/sql/Migrations.ts"
import { adminClient, databaseSettings, freshDatabase } from "../support/database/freshDatabase.ts"
import { schema4 } from "../support/database/schema4.ts"

describe("the migration of 1.0.0's schema to times of registration", () => {
  it.live("invents none for keys that exist, and records one for a key that 1.0.0 registers afterwards", () =>
    Effect.gen(function* () {
      const url = yield* freshDatabase
      yield* schema4(url)
      const sql = yield* adminClient(url)
      const register = (kek_id: string) =>
        sql`INSERT INTO keks (id, check_value) VALUES (${kek_id}, decode(repeat('01', 16), 'hex'))`
      yield* register("before")
      yield* migrate(parseDatabaseUrl(Redacted.make(url)), databaseSettings)
      yield* register("since")
      const found = yield* sql`
        SELECT id, registered_at BETWEEN now() - interval '5 minutes' AND now() + interval '1 second' AS recent
        FROM keks ORDER BY id`
      assert.deepEqual(found, [
        { id: "before", recent: null },
        { id: "since", recent: true }
      ])
    })
  )
})
