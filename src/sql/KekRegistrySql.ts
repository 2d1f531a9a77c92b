import { Effect, Layer, Schema } from "effect"
import { SqlSchema } from "effect/sql"
import { KekRegistry } from "../service/KekRegistry.ts"
import { record as recordActs } from "./auditing.ts"
import { Database } from "./Database.ts"

const Check = Schema.Struct({ kek_id: Schema.String, check_value: Schema.Uint8Array })

export const layer = Layer.effect(
  KekRegistry,
  Effect.gen(function* () {
    const { reads, writes } = yield* Database
    const known = SqlSchema.findAll({
      Request: Schema.Array(Schema.String),
      Result: Check,
      execute: (ids) => writes.sql`
        SELECT id AS kek_id, check_value FROM keks WHERE id = ANY(${ids}::text[])`
    })
    const record = ({ check_value, kek_id }: typeof Check.Type) =>
      Effect.map(
        writes.sql`
          INSERT INTO keks (id, check_value) VALUES (${kek_id}, ${check_value}) ON CONFLICT (id) DO NOTHING RETURNING id`,
        (made) => made.map(() => ({ action: "keyring.register", kek_id }) as const)
      )
    /** Walks the index from one key id to the next, instead of reading every credential. */
    const missing = SqlSchema.findAll({
      Request: Schema.Array(Schema.String),
      Result: Schema.Struct({ kek_id: Schema.String, credentials: Schema.Int }),
      execute: (ids) => reads.sql`
        WITH RECURSIVE named AS (
          SELECT min(kek_id) AS id FROM credentials
          UNION ALL
          SELECT (SELECT min(kek_id) FROM credentials WHERE kek_id > named.id) FROM named WHERE named.id IS NOT NULL
        )
        SELECT id AS kek_id, (SELECT count(*)::int FROM credentials WHERE kek_id = named.id) AS credentials
        FROM named WHERE id IS NOT NULL AND id <> ALL(${ids}::text[])`
    })
    const reserve = SqlSchema.findOne({
      Request: Schema.Struct({ kek_id: Schema.String, count: Schema.Int }),
      Result: Schema.Struct({ wraps: Schema.Finite }),
      execute: ({ count, kek_id }) => writes.sql`
        UPDATE keks SET wraps = wraps + ${count} WHERE id = ${kek_id} RETURNING wraps::float8 AS wraps`
    })

    return {
      register: (keks) =>
        Effect.gen(function* () {
          const ids = keks.map(({ kek_id }) => kek_id)
          const differing = (rows: ReadonlyArray<typeof Check.Type>) =>
            keks
              .filter(({ check_value, kek_id }) =>
                rows.some((row) => row.kek_id === kek_id && Buffer.compare(row.check_value, check_value) !== 0)
              )
              .map(({ kek_id }) => kek_id)
          yield* writes.sql`LOCK TABLE keks IN SHARE ROW EXCLUSIVE MODE`
          const found = differing(yield* known(ids))
          if (found.length === 0) yield* recordActs(writes.sql, (yield* Effect.forEach(keks, record)).flat())
          return found
        }).pipe(writes.sql.withTransaction, writes.ask, Effect.orDie),
      missing: (kek_ids) => Effect.orDie(reads.ask(missing(kek_ids))),
      reserve: (kek_id, count) =>
        Effect.map(
          Effect.orDie(writes.ask(Effect.catchTag(reserve({ kek_id, count }), "NoSuchElementError", Effect.die))),
          ({ wraps }) => wraps
        )
    }
  })
)
