import { Duration, Effect, Layer, Option, Schema } from "effect"
import { CurrentActor } from "../domain/CurrentCaller.ts"
import { type AccountId, CredentialId } from "../domain/Identifiers.ts"
import { WorkspaceGone } from "../port/CredentialRepository.ts"
import { type IdempotencyRecord, IdempotencyRecords } from "../port/IdempotencyRecords.ts"
import { recordMade } from "./auditing.ts"
import {
  auditedOf,
  type Creation,
  findStored,
  firstOrder,
  givenRow,
  hasHome,
  homeOf,
  homesOf,
  KeyedOrder,
  newColumns,
  nextOrder,
  type Order,
  sizeOf,
  toJson
} from "./credentialRows.ts"
import { Database } from "./connection/Database.ts"
import { firstRowOf, rowsOf } from "./rows.ts"

/** A new row, who creates it, and the idempotency record that is stored with it. */
interface RecordedCreation extends Creation {
  readonly record: IdempotencyRecord
}

interface Wanted {
  readonly account_id: AccountId
  readonly key_hash: Uint8Array
}

const Found = Schema.Struct({ credential_id: CredentialId, fingerprint: Schema.Uint8Array })
const KeyedFound = Schema.Struct({ account_id: Schema.String, key_hash: Schema.Uint8Array, ...Found.fields })

const hex = (bytes: Uint8Array) => Buffer.from(bytes).toString("hex")
const nameOf = ({ account_id, key_hash }: { readonly account_id: string; readonly key_hash: Uint8Array }) =>
  `${account_id} ${hex(key_hash)}`

/** Statements that lock several idempotency records lock them in one order, so that no two wait for each other. */
const inOrder = <A>(nameOf: (one: A) => string, all: ReadonlyArray<A>) =>
  all.toSorted((one, other) => (nameOf(one) < nameOf(other) ? -1 : 1))

export const layer = Layer.effect(
  IdempotencyRecords,
  Effect.map(Database, ({ writes }) => {
    const { sql } = writes
    const firstRecord = firstRowOf(Found)
    const records = rowsOf(KeyedFound)
    const orders = rowsOf(KeyedOrder)

    /** Waits for any transaction that is storing an idempotency record under the same hash. */
    const insert = writes.batch<RecordedCreation, Option.Option<typeof Order.Type>>({
      operation: "credentials.insert_once",
      sizeOf: ({ row }) => sizeOf(row),
      one: (creation) => {
        const { record, row } = creation
        const inserted = firstOrder(sql`
          WITH home AS (${homeOf(sql, row)}), receipt AS (
            INSERT INTO receipts (account_id, key_hash, credential_id, fingerprint, created_at)
            SELECT ${row.account_id}, ${record.key_hash}, ${row.id}, ${record.fingerprint}, now() FROM home
            ON CONFLICT (account_id, key_hash) DO NOTHING RETURNING credential_id
          ), made AS (
            INSERT INTO credentials (${sql.csv(newColumns)}, sort_order)
            SELECT ${sql.csv(newColumns)}, ${nextOrder(sql, givenRow(sql))}
            FROM receipt, json_populate_recordset(NULL::credentials, ${toJson([row])}::json) AS given
            RETURNING id, sort_order
          ), recorded AS (${recordMade(sql, [auditedOf(creation)])})
          SELECT id, sort_order FROM made`)
        return Effect.flatMap(inserted, (order) =>
          Option.isSome(order) ? Effect.succeed(order) : findStored(sql, row)
        )
      },
      many: (creations) => {
        const rows = creations.map(({ row }) => row)
        const given = inOrder(({ record, row }) => nameOf({ ...row, ...record }), creations)
        const inserted = orders(sql`
          WITH home AS (${homesOf(sql, rows)}), receipt AS (
            INSERT INTO receipts (account_id, key_hash, credential_id, fingerprint, created_at)
            SELECT account_id, decode(key_hash, 'hex'), credential_id, decode(fingerprint, 'hex'), now()
            FROM unnest(
              ${given.map(({ row }) => row.account_id)}::uuid[], ${given.map(({ row }) => row.workspace_id)}::uuid[],
              ${given.map(({ row }) => row.id)}::uuid[], ${given.map(({ record }) => hex(record.key_hash))}::text[],
              ${given.map(({ record }) => hex(record.fingerprint))}::text[]
            ) AS wanted (account_id, workspace_id, credential_id, key_hash, fingerprint)
            WHERE EXISTS (SELECT FROM home WHERE home_account_id = account_id AND home_id = workspace_id)
            ORDER BY account_id, key_hash
            ON CONFLICT (account_id, key_hash) DO NOTHING RETURNING account_id AS receipt_account_id, credential_id
          ), made AS (
            INSERT INTO credentials (${sql.csv(newColumns)}, sort_order)
            SELECT ${sql.csv(newColumns)}, ${nextOrder(sql, givenRow(sql))}
              + row_number() OVER (PARTITION BY account_id, workspace_id, provider ORDER BY ordinality) - 1
            FROM json_populate_recordset(NULL::credentials, ${toJson(rows)}::json) WITH ORDINALITY AS given
            JOIN receipt ON receipt_account_id = account_id AND credential_id = id
            RETURNING account_id, id, sort_order
          ), recorded AS (${recordMade(sql, creations.map(auditedOf))})
          SELECT account_id, id, sort_order FROM made`)
        return Effect.flatMap(inserted, (found) => {
          const byId = new Map(found.map((order) => [`${order.account_id} ${order.id}`, order]))
          return Effect.forEach(rows, (row) => {
            const order = byId.get(`${row.account_id} ${row.id}`)
            return order === undefined ? findStored(sql, row) : Effect.succeed(Option.some(order))
          })
        })
      }
    })

    /** The lock makes this a commit of its own, which waits for the same replicas as the idempotency record's. */
    const find = writes.batch<Wanted, Option.Option<typeof Found.Type>>({
      operation: "receipts.find",
      one: ({ account_id, key_hash }) =>
        firstRecord(sql`
          SELECT credential_id, fingerprint FROM receipts
          WHERE account_id = ${account_id} AND key_hash = ${key_hash} FOR UPDATE`),
      many: (wanted) => {
        const keys = inOrder(nameOf, wanted)
        const found = records(sql`
          SELECT locked.* FROM unnest(
            ${keys.map(({ account_id }) => account_id)}::uuid[], ${keys.map(({ key_hash }) => hex(key_hash))}::text[]
          ) AS wanted (account_id, key_hash), LATERAL (
            SELECT account_id, key_hash, credential_id, fingerprint FROM receipts
            WHERE account_id = wanted.account_id AND key_hash = decode(wanted.key_hash, 'hex') FOR UPDATE
          ) AS locked`)
        return Effect.map(found, (rows) => {
          const byName = new Map(rows.map((row) => [nameOf(row), row]))
          return wanted.map((key) => Option.fromUndefinedOr(byName.get(nameOf(key))))
        })
      }
    })

    return {
      insert: Effect.fnUntraced(function* (account_id, credential, sealed, record) {
        const row = { account_id, ...credential, ...sealed }
        const order = yield* insert({ row, record, actor: yield* CurrentActor })
        if (Option.isSome(order)) return Option.some({ ...credential, sort_order: order.value.sort_order })
        const taken = yield* writes.ask(
          sql`SELECT 1 FROM receipts WHERE account_id = ${account_id} AND key_hash = ${record.key_hash}`,
          "receipts.find"
        )
        if (taken.length === 0 && !(yield* writes.ask(hasHome(sql, row), "workspaces.exists")))
          return yield* new WorkspaceGone()
        return Option.none()
      }),
      find: (account_id, key_hash) => find({ account_id, key_hash }),
      /** Each row is found at its place, which alone names no row of a partitioned table. */
      forget: (age, limit) =>
        Effect.map(
          writes.ask(
            sql`
            WITH old AS (
              SELECT ctid, account_id, key_hash FROM receipts
              WHERE created_at < now() - make_interval(secs => ${Duration.toSeconds(age)}::float8)
              ORDER BY created_at LIMIT ${limit} FOR UPDATE SKIP LOCKED
            )
            DELETE FROM receipts WHERE ctid = ANY(ARRAY(SELECT ctid FROM old))
            AND (account_id, key_hash) IN (SELECT account_id, key_hash FROM old)
            RETURNING credential_id`,
            "receipts.forget"
          ),
          (rows) => rows.length
        )
    }
  })
)
