import { DateTime, Effect, Option } from "effect"
import type { SqlClient, Statement } from "effect/sql"
import { Credential } from "../domain/Credential.ts"
import type { Actor } from "../domain/CurrentCaller.ts"
import type { AccountId, CredentialId } from "../domain/Identifiers.ts"
import type { SealedKey } from "../domain/SealedKey.ts"
import { PoolFull, type UnstoredCredential, WorkspaceGone } from "../port/CredentialRepository.ts"
import { type Audited, entryOf } from "./auditing.ts"
import type { Query } from "./connection/Query.ts"
import { cursorOf, inLockOrder } from "./rowOrder.ts"

/** What the database assigns to a new row, the time to the millisecond, as JavaScript will read it. */
export interface Assigned {
  readonly account_id: AccountId
  readonly id: CredentialId
  readonly sort_order: number
  readonly created_at: Date
}

export type NewRow = { readonly account_id: AccountId } & UnstoredCredential & SealedKey

export const columns = Object.keys(Credential.fields)
/** The columns of the sealing context. */
export const contextColumns = [
  "account_id",
  ...columns.filter((column) => !["created_at", "label", "name", "sort_order"].includes(column))
]
export const sealedColumns = [...columns, "kek_id", "wrapped_dek", "sealed"]
export const newColumns = [
  "account_id",
  ...sealedColumns.filter((column) => !["created_at", "sort_order"].includes(column))
] as ReadonlyArray<keyof NewRow>

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
  entry: entryOf(actor, [auditedOf({ actor, row }).act])
})

export const auditedOf = ({ actor, row: { account_id, id, workspace_id } }: Creation): Audited => ({
  actor,
  act: { action: "credential.create", account_id, workspace_id, credential_id: id }
})

/** The columns of a row whose bytes are many or binary; those of a key that stays as it is are null. */
interface Sizable extends Pick<NewRow, "allowed_models" | "allowed_user_ids"> {
  readonly wrapped_dek: Uint8Array | null
  readonly sealed: Uint8Array | null
}

/** Roughly how many bytes the fields of unbounded length add to a statement. */
export const sizeOf = ({ allowed_models, allowed_user_ids, sealed }: Sizable) =>
  [...(allowed_models ?? []), ...(allowed_user_ids ?? [])].reduce(
    (sum, { length }) => sum + length,
    2 * (sealed?.length ?? 0)
  )

/** How many bytes a page that reads credentials of all accounts may have, beside its first row. */
export const pageBytes = 8 * 1024 * 1024

/** The bytes of the lists of a row, the only columns of its context without a limit. */
export const bytesOf = (sql: SqlClient.SqlClient) =>
  sql`coalesce(octet_length(allowed_models::text), 0) + coalesce(octet_length(allowed_user_ids::text), 0)`

const hexadecimal = (bytes: Uint8Array | null) => bytes && `\\x${Buffer.from(bytes).toString("hex")}`

/** Rows as `json_populate_recordset` reads them. */
export const toJson = (rows: ReadonlyArray<Sizable>) =>
  JSON.stringify(
    rows.map((row) => ({ ...row, wrapped_dek: hexadecimal(row.wrapped_dek), sealed: hexadecimal(row.sealed) }))
  )

/** Where a new row is placed. */
export type Place = Readonly<Record<"account_id" | "workspace_id" | "provider", Statement.Fragment | string>>

/**
 * The workspace of a new row unless it is deleted or full, and the `next_order`, behind all others of the same workspace
 * and provider. The lock keeps the workspace as it is until the transaction ends, and covers the one that the foreign key
 * would take. Inserts that run at the same time do not see each other: they may exceed the limit by as many as an instance
 * has in progress. Their rows also share numbers, so the next number, which costs one probe of the index, shows that there
 * is room only up to half the limit; beyond it the rows are counted.
 */
export const targetAt = (sql: SqlClient.SqlClient, { account_id, provider, workspace_id }: Place, limit: number) => {
  const pool = sql`
    FROM credentials WHERE account_id = ${account_id} AND workspace_id = ${workspace_id} AND provider = ${provider}`
  const most = sql.literal(String(limit))
  return sql`
    SELECT account_id AS target_account_id, id AS target_id, next_order
    FROM workspaces, LATERAL (SELECT coalesce(max(sort_order) + 1, 0) AS next_order ${pool}) AS last
    WHERE account_id = ${account_id} AND id = ${workspace_id} AND deleted_at IS NULL AND (
      next_order < ${sql.literal(String(Math.ceil(limit / 2)))}
      OR (SELECT count(*) FROM (SELECT ${pool} LIMIT ${most}) AS members) < ${most}
    ) FOR SHARE OF workspaces`
}

/**
 * The targets of the rows of `wanted`, for a CTE `target`. The planner estimates the same cost of counting for any values,
 * so PostgreSQL keeps one plan; where a plan for given values looks cheaper, it plans each statement anew.
 */
const targets = (sql: SqlClient.SqlClient, wanted: Statement.Fragment, limit: number) => {
  const [account_id, workspace_id, provider] = [
    sql`wanted.account_id`,
    sql`wanted.workspace_id`,
    sql`wanted.provider`
  ] as const
  return sql`
    SELECT locked.*, wanted.provider AS target_provider FROM (${wanted} OFFSET 0) AS wanted,
      LATERAL (${targetAt(sql, { account_id, workspace_id, provider }, limit)}) AS locked`
}

export const targetOf = (
  sql: SqlClient.SqlClient,
  { account_id, provider, workspace_id }: Readonly<Record<keyof Place, string>>,
  limit: number
) => {
  const wanted = sql`
    SELECT ${account_id}::uuid AS account_id, ${workspace_id}::uuid AS workspace_id, ${provider}::text AS provider`
  return targets(sql, wanted, limit)
}

/** As `targetOf`, for the workspaces and providers of several rows. */
export const targetsOf = (sql: SqlClient.SqlClient, rows: ReadonlyArray<NewRow>, limit: number) => {
  const nameOf = ({ account_id, provider, workspace_id }: NewRow) => `${account_id} ${workspace_id} ${provider}`
  const pools = inLockOrder(nameOf, Array.from(new Map(rows.map((row) => [nameOf(row), row])).values()))
  const places = pools.map(({ account_id, provider, workspace_id }) => ({ account_id, workspace_id, provider }))
  const wanted = sql`
    SELECT * FROM json_to_recordset(${JSON.stringify(places)}::json)
    AS place (account_id uuid, workspace_id uuid, provider text)`
  return targets(sql, wanted, limit)
}

/** Why a new row was not inserted; none if its id is taken. */
export const whyRefused = (sql: SqlClient.SqlClient, { account_id, id, workspace_id }: NewRow, limit: number) =>
  Effect.map(
    sql<{ taken: boolean }>`
      SELECT EXISTS (SELECT FROM credentials WHERE account_id = ${account_id} AND id = ${id}) AS taken
      FROM workspaces WHERE account_id = ${account_id} AND id = ${workspace_id} AND deleted_at IS NULL`,
    ([workspace]): Option.Option<WorkspaceGone | PoolFull> => {
      if (workspace === undefined) return Option.some(new WorkspaceGone())
      return workspace.taken ? Option.none() : Option.some(new PoolFull({ limit }))
    }
  )

/**
 * What each row was assigned, in the order of the rows: as `insert` returns it or, if it returns none, as an earlier
 * attempt whose answer was lost stored it. The lock makes finding it a commit of its own, which waits for the
 * synchronous replica in case the earlier one did not.
 */
export const assignedTo = (
  sql: SqlClient.SqlClient,
  rows: ReadonlyArray<NewRow>,
  insert: Query<ReadonlyArray<Assigned>>
) =>
  Effect.flatMap(insert, (inserted) => {
    const byKey = new Map(inserted.map((assigned) => [cursorOf(assigned), assigned]))
    return Effect.forEach(rows, (row) => {
      const assigned = byKey.get(cursorOf(row))
      if (assigned !== undefined) return Effect.succeedSome(assigned)
      const stored = sql<Assigned>`
        SELECT account_id, id, sort_order, created_at FROM credentials
        WHERE account_id = ${row.account_id} AND id = ${row.id} AND wrapped_dek = ${row.wrapped_dek} FOR UPDATE`
      return Effect.map(stored, ([before]) => Option.fromUndefinedOr(before))
    })
  })
