import { DateTime } from "effect"
import type { SqlClient, Statement } from "effect/sql"
import { type Credential, listNames, memberNames, membersOf } from "../../domain/Credential.ts"
import type { AccountId } from "../../domain/Identifiers.ts"
import { boundNames, type SealedKey } from "../../domain/SealedKey.ts"
import type { StoredCredential, UnstoredCredential } from "../../port/CredentialRepository.ts"

/** The values of a new row. The database assigns the others. */
export type NewRow = { readonly account_id: AccountId } & UnstoredCredential & SealedKey

/** The columns that make up a `Credential`, with the names of its members. */
export const credentialColumns = memberNames
/** The columns of the context that a key is sealed to. */
export const contextColumns = ["account_id", ...boundNames]
/** The columns of a credential with its sealed key. */
export const sealedColumns = [...credentialColumns, "kek_id", "wrapped_dek", "sealed"]
/** The columns of `NewRow`. The database assigns `created_at` and `sort_order`. */
export const newColumns = [
  "account_id",
  ...sealedColumns.filter((column) => !["created_at", "sort_order"].includes(column))
] as ReadonlyArray<keyof NewRow>

/** A row as the driver reads it. The database's types and constraints guarantee the form of every field. */
export interface CredentialRow extends Omit<Credential, "created_at"> {
  readonly account_id: AccountId
  readonly created_at: Date
}

/** The credential of a row, without the other columns. */
export const credentialOf = (row: Omit<CredentialRow, "account_id">): Credential => {
  const credential = membersOf<unknown>(row)
  credential.created_at = DateTime.fromDateUnsafe(row.created_at)
  return credential as unknown as Credential
}

/** A row with everything in a `StoredCredential`. */
export type SealedCredentialRow = CredentialRow & SealedKey & Omit<StoredCredential, "credential" | "sealed">

/**
 * The columns that `storedOf` decodes; `valueOf` selects each column of credentials. With Citus, `account_id` must be a
 * value, so that one node runs the statement.
 */
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

export const storedOf = (row: Omit<SealedCredentialRow, "account_id">): StoredCredential => ({
  credential: credentialOf(row),
  sealed: { kek_id: row.kek_id, sealed: row.sealed, wrapped_dek: row.wrapped_dek },
  revision: row.revision,
  key_version: row.key_version,
  workspace_deleted: row.workspace_deleted
})

/** What audit events record of a credential. */
export type Recorded = Pick<CredentialRow, "account_id" | "workspace_id" | "id" | "provider" | "label">
export const recordedColumns = ["account_id", "workspace_id", "id", "provider", "label"] as const
export const recordedOf = ({ account_id, id, label, provider, workspace_id }: Recorded) => ({
  account_id,
  workspace_id,
  credential_id: id,
  provider,
  label
})

/** Maximum bytes of a page in a scan of all accounts' credentials. A first row with more is a page by itself. */
export const pageBytes = 8 * 1024 * 1024

/** SQL for the bytes of the lists in a row. */
export const listBytes = (sql: SqlClient.SqlClient) =>
  sql.literal(listNames.map((list) => `coalesce(octet_length(array_to_string(${list}, '')), 0)`).join(" + "))

/** SQL for how many elements the lists in a row have together. */
export const listElements = (sql: SqlClient.SqlClient) =>
  sql.literal(listNames.map((list) => `coalesce(cardinality(${list}), 0)`).join(" + "))

/** The primary key of a row of credentials. Scans of all accounts read the rows in its order. */
export interface CredentialKey {
  readonly account_id: string
  readonly id: string
}

const keyWithUuid = (uuid: string): CredentialKey => ({ account_id: uuid, id: uuid })

/** Bounds of all keys. */
export const lowestKey = keyWithUuid("00000000-0000-0000-0000-000000000000")
export const highestKey = keyWithUuid("ffffffff-ffff-ffff-ffff-ffffffffffff")

/** Encodes a key as the cursor of a scan; `keyOfCursor` decodes it. */
export const cursorOf = ({ account_id, id }: CredentialKey) => `${account_id}/${id}`

export const keyOfCursor = (cursor: string): CredentialKey => {
  const [account_id = lowestKey.account_id, id = lowestKey.id] = cursor.split("/")
  return { account_id, id }
}
