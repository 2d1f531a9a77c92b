import { DateTime, Effect, Option, Schema } from "effect"
import type { SqlClient, Statement } from "effect/sql"
import { Credential } from "../domain/Credential.ts"
import type { Actor } from "../domain/CurrentCaller.ts"
import { AccountId, type CredentialId } from "../domain/Identifiers.ts"
import type { SealedKey } from "../domain/SealedKey.ts"
import { type Audited, entryOf } from "./auditing.ts"
import { cursorOf, inLockOrder } from "./rowOrder.ts"

/** The columns of the sealing context. */
export const ContextRow = Schema.Struct({ account_id: AccountId, ...Credential.fields }).mapFields(
  ({ created_at: _created_at, label: _label, name: _name, sort_order: _sort_order, ...bound }) => bound
)
/** What the database assigns to a new row. */
export interface Order {
  readonly account_id: AccountId
  readonly id: CredentialId
  readonly sort_order: number
}

export type NewRow = { readonly account_id: AccountId } & Omit<Credential, "sort_order"> & SealedKey

export const columns = Object.keys(Credential.fields)
export const sealedColumns = [...columns, "kek_id", "wrapped_dek", "sealed"]
export const newColumns = ["account_id", ...sealedColumns.filter((column) => column !== "sort_order")] as ReadonlyArray<
  keyof NewRow
>

/** A row as the driver reads it: the database's types and constraints guarantee the form of every field. */
export interface Stored extends Omit<Credential, "created_at"> {
  readonly account_id: AccountId
  readonly created_at: Date
}

export const credentialOf = ({ account_id: _account_id, created_at, ...row }: Stored): Credential => ({
  ...row,
  created_at: DateTime.fromDateUnsafe(created_at)
})

/** A new row and who creates it. */
export interface Creation {
  readonly row: NewRow
  readonly actor: Actor
}

/** The parameters of a statement that inserts one row. */
export const insertParameters = [...newColumns, "entry"] as const

export const insertValues = ({ actor, row }: Creation) => ({
  ...row,
  created_at: DateTime.toDate(row.created_at),
  entry: entryOf(actor, [auditedOf({ actor, row }).act])
})

export const auditedOf = ({ actor, row: { account_id, id, workspace_id } }: Creation): Audited => ({
  actor,
  act: { action: "credential.create", account_id, workspace_id, credential_id: id }
})

/** Roughly how many bytes the fields of unbounded length add to a statement. */
export const sizeOf = ({ allowed_models, allowed_user_ids, sealed }: NewRow) =>
  [...(allowed_models ?? []), ...(allowed_user_ids ?? [])].reduce((sum, { length }) => sum + length, 2 * sealed.length)

/** How many bytes a page that reads credentials of all accounts may have, beside its first row. */
export const pageBytes = 8 * 1024 * 1024

/** The bytes of the lists of a row, the only columns of its context without a limit. */
export const bytesOf = (sql: SqlClient.SqlClient) =>
  sql`coalesce(octet_length(allowed_models::text), 0) + coalesce(octet_length(allowed_user_ids::text), 0)`

const hexadecimal = (bytes: Uint8Array) => `\\x${Buffer.from(bytes).toString("hex")}`

/** Rows as `json_populate_recordset` reads them. */
export const toJson = (rows: ReadonlyArray<NewRow>) =>
  JSON.stringify(
    rows.map((row) => ({ ...row, wrapped_dek: hexadecimal(row.wrapped_dek), sealed: hexadecimal(row.sealed) }))
  )

/**
 * The workspace of a new row unless it is deleted, for a CTE `target`. The lock keeps it as it is until the transaction
 * ends, and covers the one that the foreign key would take.
 */
export const workspaceForInsert = (
  sql: SqlClient.SqlClient,
  { account_id, workspace_id }: Readonly<Record<"account_id" | "workspace_id", string>>
) => sql`
  SELECT account_id AS target_account_id, id AS target_id FROM workspaces
  WHERE account_id = ${account_id} AND id = ${workspace_id} AND deleted_at IS NULL FOR SHARE`

/** As `workspaceForInsert`, for the workspaces of several rows. */
export const workspacesForInsert = (sql: SqlClient.SqlClient, rows: ReadonlyArray<NewRow>) => {
  const nameOf = ({ account_id, workspace_id }: NewRow) => `${account_id} ${workspace_id}`
  const wanted = inLockOrder(nameOf, Array.from(new Map(rows.map((row) => [nameOf(row), row])).values()))
  return sql`
    SELECT locked.* FROM unnest(
      ${wanted.map(({ account_id }) => account_id)}::uuid[], ${wanted.map(({ workspace_id }) => workspace_id)}::uuid[]
    ) AS wanted (account_id, id), LATERAL (
      SELECT account_id AS target_account_id, id AS target_id FROM workspaces
      WHERE account_id = wanted.account_id AND id = wanted.id AND deleted_at IS NULL FOR SHARE
    ) AS locked`
}

/** Where a new row is placed. */
type Place = Readonly<Record<"account_id" | "workspace_id" | "provider", Statement.Fragment | string>>

/** Of a row of `given`. */
export const givenRow = (sql: SqlClient.SqlClient): Place => ({
  account_id: sql`given.account_id`,
  workspace_id: sql`given.workspace_id`,
  provider: sql`given.provider`
})

/** The `sort_order` of a new row: behind all others of the same workspace and provider. */
export const nextOrder = (sql: SqlClient.SqlClient, { account_id, provider, workspace_id }: Place) => sql`(
  SELECT coalesce(max(sort_order) + 1, 0) FROM credentials
  WHERE account_id = ${account_id} AND workspace_id = ${workspace_id} AND provider = ${provider}
)`

/** Whether the workspace of a new row is there and not deleted. */
export const workspaceExists = (sql: SqlClient.SqlClient, { account_id, workspace_id }: NewRow) =>
  Effect.map(
    sql`SELECT 1 FROM workspaces WHERE account_id = ${account_id} AND id = ${workspace_id} AND deleted_at IS NULL`,
    ({ length }) => length > 0
  )

/**
 * The order of each row, in the order of the rows: as `insert` returns it or, if it returns none, as an earlier attempt
 * whose answer was lost stored it. The lock makes finding it a commit of its own, which waits for the synchronous
 * replica in case the earlier one did not.
 */
export const insertedOrders = (
  sql: SqlClient.SqlClient,
  rows: ReadonlyArray<NewRow>,
  insert: Statement.Statement<Order>
) =>
  Effect.flatMap(insert, (inserted) => {
    const byKey = new Map(inserted.map((order) => [cursorOf(order), order]))
    return Effect.forEach(rows, (row) => {
      const order = byKey.get(cursorOf(row))
      if (order !== undefined) return Effect.succeedSome(order)
      const stored = sql<Order>`
        SELECT account_id, id, sort_order FROM credentials
        WHERE account_id = ${row.account_id} AND id = ${row.id} AND wrapped_dek = ${row.wrapped_dek} FOR UPDATE`
      return Effect.map(stored, ([order]) => Option.fromUndefinedOr(order))
    })
  })
