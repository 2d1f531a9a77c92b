import { Effect, Layer } from "effect"
import type { SqlClient } from "effect/sql"
import type { CredentialId } from "../../domain/Identifiers.ts"
import type { LastUse } from "../../domain/routing/LastUse.ts"
import { CredentialUse, type UsedCredential } from "../../port/CredentialUse.ts"
import { Database } from "../connection/Database.ts"
import { inLockOrder } from "../connection/statements.ts"

/** Formats a time in milliseconds since 1970; null as "", because the driver cannot send an array of only nulls. */
const timeOf = (at: number | null) => (at === null ? "" : new Date(at).toISOString())

/** The uses as rows `use`, in the order of locking. */
const rowsOf = (sql: SqlClient.SqlClient, uses: ReadonlyArray<UsedCredential>) => {
  const sorted = inLockOrder(({ account_id, credential_id }) => `${account_id} ${credential_id}`, uses)
  return sql`
    unnest(
      ${sorted.map(({ account_id }) => account_id)}::uuid[],
      ${sorted.map(({ credential_id }) => credential_id)}::uuid[],
      ${sorted.map(({ last_leased_at }) => timeOf(last_leased_at))}::text[],
      ${sorted.map(({ last_succeeded_at }) => timeOf(last_succeeded_at))}::text[],
      ${sorted.map(({ last_failed_at }) => timeOf(last_failed_at))}::text[],
      ${sorted.map(({ last_failure }) => last_failure ?? "")}::text[],
      ${sorted.map(({ last_failed_version }) => last_failed_version ?? 0)}::integer[]
    ) AS use (account_id, credential_id, last_leased_at, last_succeeded_at, last_failed_at, last_failure, last_failed_version)`
}

export const layer = Layer.effect(
  CredentialUse,
  Effect.map(Database, ({ background, reads }) => ({
    /** Keeps the latest of each time. The failure and its version are those of the latest `last_failed_at`. */
    store: (uses) => {
      const { ask, sql } = background
      return Effect.asVoid(
        ask(
          sql`
          INSERT INTO credential_use AS used
            (account_id, credential_id, last_leased_at, last_succeeded_at, last_failed_at, last_failure, last_failed_version)
          SELECT credentials.account_id, credentials.id, nullif(use.last_leased_at, '')::timestamptz,
            nullif(use.last_succeeded_at, '')::timestamptz, nullif(use.last_failed_at, '')::timestamptz,
            nullif(use.last_failure, ''), nullif(use.last_failed_version, 0)
          FROM ${rowsOf(sql, uses)}
          JOIN credentials ON credentials.account_id = use.account_id AND credentials.id = use.credential_id
          ON CONFLICT (account_id, credential_id) DO UPDATE
          SET last_leased_at = greatest(used.last_leased_at, excluded.last_leased_at),
            last_succeeded_at = greatest(used.last_succeeded_at, excluded.last_succeeded_at),
            last_failed_at = greatest(used.last_failed_at, excluded.last_failed_at),
            last_failure = CASE WHEN used.last_failed_at >= excluded.last_failed_at OR excluded.last_failed_at IS NULL
              THEN used.last_failure ELSE excluded.last_failure END,
            last_failed_version = CASE WHEN used.last_failed_at >= excluded.last_failed_at OR excluded.last_failed_at IS NULL
              THEN used.last_failed_version ELSE excluded.last_failed_version END`,
          "credential_use.store"
        )
      )
    },
    find: (account_id, ids) => {
      const { ask, sql } = reads
      const rows = sql<LastUse & { readonly credential_id: CredentialId }>`
        SELECT credential_id, (extract(epoch FROM last_leased_at) * 1000)::float8 AS last_leased_at,
          (extract(epoch FROM last_succeeded_at) * 1000)::float8 AS last_succeeded_at,
          (extract(epoch FROM last_failed_at) * 1000)::float8 AS last_failed_at, last_failure, last_failed_version
        FROM credential_use WHERE account_id = ${account_id} AND credential_id = ANY(${ids}::uuid[])`
      return Effect.map(
        ask(rows, "credential_use.find", account_id),
        (rows) => new Map(rows.map(({ credential_id, ...use }) => [credential_id, use]))
      )
    }
  }))
)
