import { DateTime, Effect, Layer, Option, Schema } from "effect"
import type { SqlClient } from "effect/sql"
import { AccountId } from "../domain/AccountId.ts"
import { type Actor, CurrentActor } from "../domain/Actor.ts"
import { Credential } from "../domain/Credential.ts"
import type { CredentialId } from "../domain/CredentialId.ts"
import type { SealedKey } from "../domain/SealedKey.ts"
import { CredentialRepository } from "../port/CredentialRepository.ts"
import { type Audited, recordMade } from "./auditing.ts"
import { Database } from "./connection/Database.ts"
import { DatabaseFailure } from "./connection/DatabaseFailure.ts"
import { firstRowOf, rowsOf } from "./rows.ts"

const Row = Schema.Struct({ ...Credential.fields, created_at: Schema.DateTimeUtcFromDate })
const SealedRow = Schema.Struct({
  ...Row.fields,
  kek_id: Schema.String,
  wrapped_dek: Schema.Uint8Array,
  sealed: Schema.Uint8Array
})
const Order = Schema.Struct({ id: Schema.String, sort_order: Schema.Int })

interface Key {
  readonly account_id: AccountId
  readonly id: CredentialId
}
type NewRow = Key & Omit<Credential, "sort_order"> & SealedKey

const columns = Object.keys(Row.fields)
const sealedColumns = Object.keys(SealedRow.fields)
export const newColumns = ["account_id", ...sealedColumns.filter((column) => column !== "sort_order")] as ReadonlyArray<
  keyof NewRow
>

/** A row as the driver reads it: columns and constraints of the database give every field its form already. */
interface Stored extends Omit<Credential, "created_at"> {
  readonly account_id: AccountId
  readonly created_at: Date
}

const credentialOf = ({ account_id: _account_id, created_at, ...row }: Stored): Credential => ({
  ...row,
  created_at: DateTime.fromDateUnsafe(created_at)
})

/** A row, and who creates it. */
interface Creation {
  readonly row: NewRow
  readonly actor: Actor
}

export const auditedOf = ({ actor, row: { account_id, id, workspace_id } }: Creation): Audited => ({
  actor,
  act: { action: "credential.create", account_id, workspace_id, credential_id: id }
})

const parameterOf = (value: NewRow[keyof NewRow]) => (DateTime.isDateTime(value) ? DateTime.toDate(value) : value)

const hexadecimal = (bytes: Uint8Array) => `\\x${Buffer.from(bytes).toString("hex")}`

/** Rows as PostgreSQL reads them from JSON. */
export const toJson = (rows: ReadonlyArray<NewRow>) =>
  JSON.stringify(
    rows.map((row) => ({ ...row, wrapped_dek: hexadecimal(row.wrapped_dek), sealed: hexadecimal(row.sealed) }))
  )

/** What may be long, as it is in JSON. */
const sizeOf = ({ allowed_models, allowed_user_ids, sealed }: NewRow) =>
  [...(allowed_models ?? []), ...(allowed_user_ids ?? [])].reduce((sum, { length }) => sum + length, 2 * sealed.length)

export const firstOrder = firstRowOf(Order)

/**
 * Finds what an earlier attempt of the same insert has stored, when its answer was lost. The lock makes this a commit of
 * its own, which waits for the synchronous replica if the earlier one was kept from it.
 */
export const findStored = (sql: SqlClient.SqlClient, { account_id, id, wrapped_dek }: NewRow) =>
  firstOrder(sql`
    SELECT id, sort_order FROM credentials
    WHERE id = ${id} AND account_id = ${account_id} AND wrapped_dek = ${wrapped_dek}
    FOR UPDATE`)

/** Statements name their columns: the sealed key leaves the database only where it is asked for. */
export const layer = Layer.effect(
  CredentialRepository,
  Effect.gen(function* () {
    const { reads, writes } = yield* Database
    const firstSealed = firstRowOf(SealedRow)
    const orders = rowsOf(Order)

    const find = reads.gather<Key, Option.Option<Credential>>({
      one: ({ account_id, id }) => {
        const { sql } = reads
        const found = sql<Stored>`
          SELECT account_id, ${sql.csv(columns)} FROM credentials WHERE id = ${id} AND account_id = ${account_id}`
        return Effect.map(found, ([row]) => Option.map(Option.fromUndefinedOr(row), credentialOf))
      },
      many: (keys) => {
        const { sql } = reads
        const ids = keys.map(({ id }) => id)
        const accounts = keys.map(({ account_id }) => account_id)
        const found = sql<Stored>`
          SELECT account_id, ${sql.csv(columns)} FROM credentials
          JOIN unnest(${ids}::uuid[], ${accounts}::uuid[]) AS wanted (id, account_id) USING (id, account_id)`
        return Effect.map(found, (rows) => {
          const byKey = new Map(rows.map((row) => [`${row.account_id} ${row.id}`, credentialOf(row)]))
          return keys.map(({ account_id, id }) => Option.fromUndefinedOr(byKey.get(`${account_id} ${id}`)))
        })
      }
    })

    const insert = writes.gather<Creation, Option.Option<typeof Order.Type>>({
      sizeOf: ({ row }) => sizeOf(row),
      one: (creation) => {
        const { sql } = writes
        const { row } = creation
        const values = newColumns.map((column) => sql`${parameterOf(row[column])}`)
        const inserted = firstOrder(sql`
          WITH made AS (
            INSERT INTO credentials (${sql.csv(newColumns)}, sort_order)
            VALUES (${sql.csv(values)}, (
              SELECT coalesce(max(sort_order) + 1, 0) FROM credentials
              WHERE workspace_id = ${row.workspace_id} AND provider = ${row.provider}
            ))
            ON CONFLICT (id) DO NOTHING RETURNING id, sort_order
          ), recorded AS (${recordMade(sql, [auditedOf(creation)])})
          SELECT id, sort_order FROM made`)
        return Effect.flatMap(inserted, (order) =>
          Option.isSome(order) ? Effect.succeed(order) : findStored(sql, row)
        )
      },
      many: (creations) => {
        const { sql } = writes
        const rows = creations.map(({ row }) => row)
        const inserted = orders(sql`
          WITH made AS (
            INSERT INTO credentials (${sql.csv(newColumns)}, sort_order)
            SELECT ${sql.csv(newColumns)}, (
              SELECT coalesce(max(sort_order) + 1, 0) FROM credentials
              WHERE workspace_id = given.workspace_id AND provider = given.provider
            ) + row_number() OVER (PARTITION BY workspace_id, provider) - 1
            FROM json_populate_recordset(NULL::credentials, ${toJson(rows)}::json) AS given
            ON CONFLICT (id) DO NOTHING RETURNING id, sort_order
          ), recorded AS (${recordMade(sql, creations.map(auditedOf))})
          SELECT id, sort_order FROM made`)
        return Effect.flatMap(inserted, (found) => {
          const byId = new Map(found.map((order) => [order.id, order]))
          return Effect.forEach(rows, (row) => {
            const order = byId.get(row.id)
            return order === undefined ? findStored(sql, row) : Effect.succeed(Option.some(order))
          })
        })
      }
    })
    const taken = new DatabaseFailure({ kind: "IdTaken", sqlstate: undefined, constraint: "credentials_pkey" })

    return {
      insert: (account_id, credential, sealed) =>
        CurrentActor.pipe(
          Effect.flatMap((actor) => insert({ row: { account_id, ...credential, ...sealed }, actor })),
          Effect.flatMap((order) =>
            Option.isSome(order)
              ? Effect.succeed({ ...credential, sort_order: order.value.sort_order })
              : Effect.die(taken)
          )
        ),
      findById: (account_id, id) => find({ account_id, id }),
      findSealed: (account_id, id) => {
        const { ask, sql } = reads
        const row = firstSealed(
          sql`SELECT ${sql.csv(sealedColumns)} FROM credentials WHERE id = ${id} AND account_id = ${account_id}`
        )
        return Effect.map(
          ask(row),
          Option.map(({ kek_id, sealed, wrapped_dek, ...credential }) => ({
            credential,
            sealed: { kek_id, sealed, wrapped_dek }
          }))
        )
      }
    }
  })
)
