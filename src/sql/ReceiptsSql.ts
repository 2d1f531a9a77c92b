import { Duration, Effect, Layer, Option, Schema } from "effect"
import { CurrentActor } from "../domain/Actor.ts"
import { CredentialId } from "../domain/CredentialId.ts"
import { Receipts } from "../port/Receipts.ts"
import { WorkspaceGone } from "../port/WorkspaceGone.ts"
import { recordMade } from "./auditing.ts"
import {
  auditedOf,
  findStored,
  firstOrder,
  givenRow,
  hasHome,
  homeOf,
  newColumns,
  nextOrder,
  toJson
} from "./credentialRows.ts"
import { Database } from "./connection/Database.ts"
import { firstRowOf } from "./rows.ts"

export const layer = Layer.effect(
  Receipts,
  Effect.map(Database, ({ writes }) => {
    const { sql } = writes
    const firstReceipt = firstRowOf(Schema.Struct({ credential_id: CredentialId, fingerprint: Schema.Uint8Array }))

    return {
      insert: Effect.fnUntraced(function* (account_id, credential, sealed, { fingerprint, key_hash }) {
        const actor = yield* CurrentActor
        const row = { account_id, ...credential, ...sealed }
        /** Waits for any transaction that is storing a receipt under the same hash. */
        const inserted = firstOrder(sql`
          WITH home AS (${homeOf(sql, row)}), receipt AS (
            INSERT INTO receipts (account_id, key_hash, credential_id, fingerprint, created_at)
            SELECT ${account_id}, ${key_hash}, ${row.id}, ${fingerprint}, now() FROM home
            ON CONFLICT (account_id, key_hash) DO NOTHING RETURNING credential_id
          ), made AS (
            INSERT INTO credentials (${sql.csv(newColumns)}, sort_order)
            SELECT ${sql.csv(newColumns)}, ${nextOrder(sql, givenRow(sql))}
            FROM receipt, json_populate_recordset(NULL::credentials, ${toJson([row])}::json) AS given
            RETURNING id, sort_order
          ), recorded AS (${recordMade(sql, [auditedOf({ row, actor })])})
          SELECT id, sort_order FROM made`)
        const query = Effect.flatMap(inserted, (order) =>
          Option.isSome(order) ? Effect.succeed(order) : findStored(sql, row)
        )
        const order = yield* writes.ask(query)
        if (Option.isSome(order)) return Option.some({ ...credential, sort_order: order.value.sort_order })
        const taken = yield* writes.ask(
          sql`SELECT 1 FROM receipts WHERE account_id = ${account_id} AND key_hash = ${key_hash}`
        )
        if (taken.length === 0 && !(yield* writes.ask(hasHome(sql, row)))) return yield* new WorkspaceGone()
        return Option.none()
      }),
      /** The lock makes this a commit of its own, which waits for the same replicas as the receipt's. */
      find: (account_id, key_hash) =>
        writes.ask(
          firstReceipt(sql`
            SELECT credential_id, fingerprint FROM receipts
            WHERE account_id = ${account_id} AND key_hash = ${key_hash} FOR UPDATE`)
        ),
      /** Each row is found at its place, which alone names no row of a partitioned table. */
      forget: (age, limit) =>
        Effect.map(
          writes.ask(sql`
            WITH old AS (
              SELECT ctid, account_id, key_hash FROM receipts
              WHERE created_at < now() - make_interval(secs => ${Duration.toSeconds(age)}::float8)
              ORDER BY created_at LIMIT ${limit} FOR UPDATE SKIP LOCKED
            )
            DELETE FROM receipts WHERE ctid = ANY(ARRAY(SELECT ctid FROM old))
            AND (account_id, key_hash) IN (SELECT account_id, key_hash FROM old)
            RETURNING credential_id`),
          (rows) => rows.length
        )
    }
  })
)
