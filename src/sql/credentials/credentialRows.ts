import { DateTime } from "effect"
import type { SqlClient, Statement } from "effect/sql"
import { Credential } from "../../domain/Credential.ts"
import type { AccountId } from "../../domain/Identifiers.ts"
import type { SealedKey } from "../../domain/SealedKey.ts"
import type { UnstoredCredential } from "../../port/CredentialRepository.ts"

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
