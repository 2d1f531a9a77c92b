import { Duration, Effect, Layer, Option } from "effect"
import { CurrentActor } from "../domain/CurrentCaller.ts"
import type { AccountId, CredentialId } from "../domain/Identifiers.ts"
import { MaxCredentials } from "../port/CredentialRepository.ts"
import { type IdempotencyRecord, IdempotencyRecords } from "../port/IdempotencyRecords.ts"
import { entryOf, recordInsert, recordInserts } from "./auditing.ts"
import {
  type Assigned,
  assignedTo,
  auditedOf,
  type Creation,
  credentialOf,
  newColumns,
  sizeOf,
  targetOf,
  targetsOf,
  toJson,
  whyRefused
} from "./credentialRows.ts"
import { insertRouted } from "./insertRouted.ts"
import { Database } from "./connection/Database.ts"
import { makeLookUp } from "./connection/makeLookUp.ts"
import { inLockOrder } from "./rowOrder.ts"

/** A new row, who creates it, and the idempotency record that is stored with it. */
interface RecordedCreation extends Creation {
  readonly record: IdempotencyRecord
}

interface Wanted {
  readonly account_id: AccountId
  readonly key_hash: Uint8Array
}

interface Found {
  readonly credential_id: CredentialId
  readonly fingerprint: Uint8Array
}

const hex = (bytes: Uint8Array) => Buffer.from(bytes).toString("hex")
const nameOf = ({ account_id, key_hash }: { readonly account_id: string; readonly key_hash: Uint8Array }) =>
  `${account_id} ${hex(key_hash)}`

export const layer = Layer.effect(
  IdempotencyRecords,
  Effect.map(Effect.all([Database, MaxCredentials]), ([{ writes }, limit]) => {
    const { distributed, sql } = writes
    /** Waits for any transaction that is storing an idempotency record under the same hash. */
    const insert = writes.batch<RecordedCreation, Option.Option<Assigned>>({
      operation: "credentials.insert_once",
      sizeOf: ({ row }) => sizeOf(row),
      one: (creation) => {
        const { record, row } = creation
        const inserted = sql<Assigned>`
          WITH target AS (${targetOf(sql, row, limit)}), receipt AS (
            INSERT INTO receipts (account_id, key_hash, credential_id, fingerprint, created_at)
            SELECT ${row.account_id}, ${record.key_hash}, ${row.id}, ${record.fingerprint}, now() FROM target
            ON CONFLICT (account_id, key_hash) DO NOTHING RETURNING credential_id
          ), inserted AS (
            INSERT INTO credentials (${sql.csv(newColumns)}, sort_order, created_at)
            SELECT ${sql.csv(newColumns)}, next_order, date_trunc('milliseconds', now())
            FROM target, receipt, json_populate_recordset(NULL::credentials, ${toJson([row])}::json)
            RETURNING account_id, id, sort_order, created_at
          ), recorded AS (${recordInsert(sql, row.account_id, entryOf(creation.actor, [auditedOf(creation).act]))})
          SELECT account_id, id, sort_order, created_at FROM inserted`
        const stored = assignedTo(sql, [row], distributed ? insertRouted(sql, creation, limit, record) : inserted)
        return Effect.map(stored, ([assigned = Option.none()]) => assigned)
      },
      many: (creations) => {
        const rows = creations.map(({ row }) => row)
        const given = inLockOrder(({ record, row }) => nameOf({ ...row, ...record }), creations)
        const inserted = sql<Assigned>`
          WITH target AS (${targetsOf(sql, rows, limit)}), receipt AS (
            INSERT INTO receipts (account_id, key_hash, credential_id, fingerprint, created_at)
            SELECT account_id, decode(key_hash, 'hex'), credential_id, decode(fingerprint, 'hex'), now()
            FROM unnest(
              ${given.map(({ row }) => row.account_id)}::uuid[], ${given.map(({ row }) => row.workspace_id)}::uuid[],
              ${given.map(({ row }) => row.id)}::uuid[], ${given.map(({ record }) => hex(record.key_hash))}::text[],
              ${given.map(({ record }) => hex(record.fingerprint))}::text[], ${given.map(({ row }) => row.provider)}::text[]
            ) AS wanted (account_id, workspace_id, credential_id, key_hash, fingerprint, provider)
            WHERE EXISTS (
              SELECT FROM target
              WHERE target_account_id = account_id AND target_id = workspace_id AND target_provider = provider
            )
            ORDER BY account_id, key_hash
            ON CONFLICT (account_id, key_hash) DO NOTHING RETURNING account_id AS receipt_account_id, credential_id
          ), inserted AS (
            INSERT INTO credentials (${sql.csv(newColumns)}, sort_order, created_at)
            SELECT ${sql.csv(newColumns)},
              next_order + row_number() OVER (PARTITION BY account_id, workspace_id, provider ORDER BY ordinality) - 1,
              date_trunc('milliseconds', now())
            FROM json_populate_recordset(NULL::credentials, ${toJson(rows)}::json) WITH ORDINALITY
            JOIN receipt ON receipt_account_id = account_id AND credential_id = id
            JOIN target ON target_account_id = account_id AND target_id = workspace_id AND target_provider = provider
            RETURNING account_id, id, sort_order, created_at
          ), recorded AS (${recordInserts(sql, creations.map(auditedOf))})
          SELECT account_id, id, sort_order, created_at FROM inserted`
        return assignedTo(sql, rows, inserted)
      }
    })

    /** The lock makes this a commit of its own, which waits for the same replicas as the insert of the record. */
    const find = makeLookUp<Wanted, Found, Found>(writes, {
      operation: "receipts.find",
      by: { account_id: "uuid", key_hash: "bytea" },
      select: ({ account_id, key_hash }) => sql<Found>`
        SELECT credential_id, fingerprint FROM receipts
        WHERE account_id = ${account_id} AND key_hash = ${key_hash} FOR UPDATE`,
      read: ({ credential_id, fingerprint }) => ({ credential_id, fingerprint }),
      nameOf
    })

    return {
      insert: Effect.fnUntraced(function* (account_id, credential, sealed, record) {
        const row = { account_id, ...credential, ...sealed }
        const assigned = yield* insert({ row, record, actor: yield* CurrentActor })
        if (Option.isSome(assigned)) return Option.some(credentialOf({ ...credential, ...assigned.value }))
        const taken = yield* writes.ask(
          sql`SELECT 1 FROM receipts WHERE account_id = ${account_id} AND key_hash = ${record.key_hash}`,
          "receipts.find"
        )
        if (taken.length > 0) return Option.none()
        const refusal = yield* writes.ask(whyRefused(sql, row, limit), "workspaces.exists")
        return Option.isSome(refusal) ? yield* Effect.fail(refusal.value) : Option.none()
      }),
      find: (account_id, key_hash) => find({ account_id, key_hash }),
      /** Rows are found by `ctid`, and by key as well: a `ctid` alone is ambiguous in a partitioned table. Citus locks no rows of several nodes. */
      forget: (age, limit) =>
        Effect.map(
          writes.ask(
            sql`
            WITH old AS (
              SELECT ${sql.csv(["account_id", "key_hash", ...(distributed ? [] : ["ctid"])])} FROM receipts
              WHERE created_at < now() - make_interval(secs => ${Duration.toSeconds(age)}::float8)
              ORDER BY created_at LIMIT ${limit} ${distributed ? sql`` : sql`FOR UPDATE SKIP LOCKED`}
            )
            DELETE FROM receipts WHERE ${distributed ? sql`true` : sql`ctid = ANY(ARRAY(SELECT ctid FROM old))`}
            AND (account_id, key_hash) IN (SELECT account_id, key_hash FROM old)
            RETURNING credential_id`,
            "receipts.forget"
          ),
          (rows) => rows.length
        )
    }
  })
)
