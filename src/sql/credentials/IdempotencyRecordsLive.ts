import { Duration, Effect, Layer } from "effect"
import type { AccountId, CredentialId } from "../../domain/Identifiers.ts"
import { IdempotencyRecords } from "../../port/IdempotencyRecords.ts"
import { Database } from "../connection/Database.ts"
import { askFirst } from "../connection/statements.ts"

interface Row {
  readonly credential_id: CredentialId
  readonly fingerprint: Uint8Array
}

export const layer = Layer.effect(
  IdempotencyRecords,
  Effect.map(Database, ({ writes }) => {
    const { distributed, sql } = writes
    return {
      /** Locks the record: a write, so that the look-up's commit waits for the same replicas as the record's insert. */
      find: (account_id: AccountId, key_hash) => askFirst(writes, "idempotency_records.find", account_id)<Row>`
        SELECT credential_id, fingerprint FROM idempotency_records
        WHERE account_id = ${account_id} AND key_hash = ${key_hash} FOR UPDATE`,
      /**
       * Deletes by `ctid` and key, because `ctid` alone is ambiguous in a partitioned table. On Citus, which cannot
       * lock rows of several nodes, deletes by key alone and without locks.
       */
      deleteOlderThan: (age, limit) =>
        Effect.map(
          writes.ask(
            sql`
            WITH old AS (
              SELECT ${sql.csv(["account_id", "key_hash", ...(distributed ? [] : ["ctid"])])} FROM idempotency_records
              WHERE created_at < now() - make_interval(secs => ${Duration.toSeconds(age)}::float8)
              ORDER BY created_at LIMIT ${limit} ${distributed ? sql`` : sql`FOR UPDATE SKIP LOCKED`}
            )
            DELETE FROM idempotency_records WHERE ${distributed ? sql`true` : sql`ctid = ANY(ARRAY(SELECT ctid FROM old))`}
            AND (account_id, key_hash) IN (SELECT account_id, key_hash FROM old)
            RETURNING credential_id`,
            "idempotency_records.forget"
          ),
          (rows) => rows.length
        )
    }
  })
)
