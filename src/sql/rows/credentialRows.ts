import { DateTime } from "effect"
import type { SqlClient, Statement } from "effect/sql"
import { type Column, type Credential, listNames, memberNames, members, membersOf } from "../../domain/Credential.ts"
import type { AccountId } from "../../domain/Identifiers.ts"
import { boundNames, type SealedKey } from "../../domain/SealedKey.ts"
import type { StoredCredential, UnstoredCredential } from "../../port/CredentialRepository.ts"

export type NewRow = { readonly account_id: AccountId } & UnstoredCredential & SealedKey

export const columns = memberNames
export const contextColumns = ["account_id", ...boundNames]
export const sealedColumns = [...columns, "kek_id", "wrapped_dek", "sealed"]
export const newColumns = [
  "account_id",
  ...sealedColumns.filter((column) => !["created_at", "sort_order"].includes(column))
] as ReadonlyArray<keyof NewRow>

/** A row as the driver reads it. The database's types and constraints guarantee the form of every field. */
export interface Stored extends Omit<Credential, "created_at"> {
  readonly account_id: AccountId
  readonly created_at: Date
}

/** The credential of a row, without the other columns. */
export const credentialOf = (row: Omit<Stored, "account_id">): Credential => {
  const credential = membersOf<unknown>(row)
  credential.created_at = DateTime.fromDateUnsafe(row.created_at)
  return credential as unknown as Credential
}

/** A row with its sealed key: the columns `storedColumns`. */
export type StoredSealed = Stored & SealedKey & Omit<StoredCredential, "credential" | "sealed">

/** The columns of `StoredSealed`. Citus needs the account as a value to run the statement on one node. */
export const storedColumns = (
  sql: SqlClient.SqlClient,
  account_id: Statement.Fragment,
  valueOf = (column: string) => sql.literal(`credentials.${column}`)
) =>
  sql.csv([
    ...[...sealedColumns, "revision", "key_version"].map(valueOf),
    sql`(
      SELECT deleted_at IS NOT NULL FROM workspaces
      WHERE workspaces.account_id = ${account_id} AND workspaces.id = credentials.workspace_id
    ) AS workspace_deleted`
  ])

export const storedOf = (row: Omit<StoredSealed, "account_id">): StoredCredential => ({
  credential: credentialOf(row),
  sealed: { kek_id: row.kek_id, sealed: row.sealed, wrapped_dek: row.wrapped_dek },
  revision: row.revision,
  key_version: row.key_version,
  workspace_deleted: row.workspace_deleted
})

/** The columns of a credential in audit events. */
export type Recorded = Pick<Stored, "account_id" | "workspace_id" | "id" | "provider" | "label">
export const recordedColumns = ["account_id", "workspace_id", "id", "provider", "label"] as const
export const recordedOf = ({ account_id, id, label, provider, workspace_id }: Recorded) => ({
  account_id,
  workspace_id,
  credential_id: id,
  provider,
  label
})

/** The bytes of a row's lists and sealed key, as the database counts them; `sealed` is null in an update that keeps the key. */
export const memberBytesOf = (
  row: Pick<NewRow, (typeof listNames)[number]> & { readonly sealed?: Uint8Array | null }
) =>
  listNames
    .flatMap((list) => row[list] ?? [])
    .reduce((sum, element) => sum + Buffer.byteLength(element), row.sealed?.length ?? 0)

/** Maximum bytes of a page of credentials of all accounts, unless its first row alone has more. */
export const pageBytes = 8 * 1024 * 1024

/** SQL for the bytes of the lists in a row. */
export const listBytes = (sql: SqlClient.SqlClient, row?: string) =>
  sql.literal(
    listNames
      .map((list) => `coalesce(octet_length(array_to_string(${row === undefined ? list : `${row}.${list}`}, '')), 0)`)
      .join(" + ")
  )

const types: Readonly<Record<string, string>> = {
  ...Object.fromEntries(memberNames.map((name) => [name, members[name].column])),
  ...{ account_id: "uuid", kek_id: "text", wrapped_dek: "bytea", sealed: "bytea" }
}

export const columnTypes = Object.fromEntries(newColumns.map((column) => [column, types[column]])) as Readonly<
  Record<keyof NewRow, Exclude<Column, "timestamptz"> | "bytea">
>

/** The key of a row of credentials, and the order of reading the credentials of all accounts. */
export interface CredentialKey {
  readonly account_id: string
  readonly id: string
}

const keyOfBoth = (uuid: string): CredentialKey => ({ account_id: uuid, id: uuid })
export const lowestKey = keyOfBoth("00000000-0000-0000-0000-000000000000")
export const highestKey = keyOfBoth("ffffffff-ffff-ffff-ffff-ffffffffffff")

export const cursorOf = ({ account_id, id }: CredentialKey) => `${account_id}/${id}`

export const keyOfCursor = (cursor: string): CredentialKey => {
  const [account_id = lowestKey.account_id, id = lowestKey.id] = cursor.split("/")
  return { account_id, id }
}
