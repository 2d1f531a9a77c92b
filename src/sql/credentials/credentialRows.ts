import { DateTime } from "effect"
import type { SqlClient } from "effect/sql"
import { Credential } from "../../domain/Credential.ts"
import type { AccountId } from "../../domain/Identifiers.ts"
import type { SealedKey } from "../../domain/SealedKey.ts"
import type { UnstoredCredential } from "../../port/CredentialRepository.ts"
import type { ColumnType } from "./makeWrite.ts"

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

/** The credential of a row, member by member: copying the rest of a row without its other columns takes ten times as long. */
export const credentialOf = (row: Omit<Stored, "account_id">): Credential => ({
  id: row.id,
  workspace_id: row.workspace_id,
  provider: row.provider,
  name: row.name,
  label: row.label,
  created_at: DateTime.fromDateUnsafe(row.created_at),
  disabled: row.disabled,
  is_fallback: row.is_fallback,
  is_required: row.is_required,
  is_byok_only: row.is_byok_only,
  allowed_api_key_hashes: row.allowed_api_key_hashes,
  allowed_models: row.allowed_models,
  allowed_user_ids: row.allowed_user_ids,
  declared_region: row.declared_region,
  declared_zdr: row.declared_zdr,
  sort_order: row.sort_order
})

const lists = ["allowed_api_key_hashes", "allowed_models", "allowed_user_ids"] as const

/** The bytes of the lists and the sealed key of a row, as the database counts them; a key that stays as it is is null. */
export const memberBytesOf = (row: Pick<NewRow, (typeof lists)[number]> & { readonly sealed: Uint8Array | null }) =>
  lists
    .flatMap((list) => row[list] ?? [])
    .reduce((sum, element) => sum + Buffer.byteLength(element), row.sealed?.length ?? 0)

/** How many bytes a page that reads credentials of all accounts may have, beside its first row. */
export const pageBytes = 8 * 1024 * 1024

/** The bytes of the lists of a row. */
export const bytesOf = (sql: SqlClient.SqlClient, row?: string) =>
  sql.literal(
    lists
      .map((list) => `coalesce(octet_length(array_to_string(${row === undefined ? list : `${row}.${list}`}, '')), 0)`)
      .join(" + ")
  )

/** The type of each column that a new row brings. */
export const columnTypes: Readonly<Record<keyof NewRow, ColumnType>> = {
  id: "uuid",
  account_id: "uuid",
  workspace_id: "uuid",
  provider: "text",
  name: "text",
  label: "text",
  disabled: "boolean",
  is_fallback: "boolean",
  is_required: "boolean",
  is_byok_only: "boolean",
  allowed_api_key_hashes: "text[]",
  allowed_models: "text[]",
  allowed_user_ids: "text[]",
  declared_region: "text",
  declared_zdr: "boolean",
  kek_id: "text",
  wrapped_dek: "bytea",
  sealed: "bytea"
}
