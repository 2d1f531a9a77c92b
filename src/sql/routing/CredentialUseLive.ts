import { Effect, Layer } from "effect"
import type { SqlClient, Statement } from "effect/sql"
import type { CredentialId, CredentialReference } from "../../domain/Identifiers.ts"
import { type LastUse, longestRow } from "../../domain/routing/LastUse.ts"
import { CredentialUse, type UsedCredential } from "../../port/CredentialUse.ts"
import type { ConnectionPool } from "../connection/ConnectionPool.ts"
import { Database } from "../connection/Database.ts"
import { inLockOrder } from "../connection/statements.ts"
import { referencesOf, setOf } from "../rows/parkingRows.ts"

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
      ${sorted.map(({ last_failed_version }) => last_failed_version ?? 0)}::bigint[],
      ${sorted.map(({ last_refused_at }) => timeOf(last_refused_at))}::text[],
      ${sorted.map(({ last_refused_status }) => last_refused_status ?? -1)}::integer[],
      ${sorted.map(({ last_refused_code }) => last_refused_code ?? "")}::text[],
      ${sorted.map(({ refused_since }) => timeOf(refused_since))}::text[],
      ${sorted.map(({ refused_in_a_row }) => refused_in_a_row)}::integer[]
    ) AS use (account_id, credential_id, last_leased_at, last_succeeded_at, last_failed_at, last_failure,
      last_failed_version, last_refused_at, last_refused_status, last_refused_code, refused_since, refused_in_a_row)`
}

/** The credentials of which no other transaction has locked a row that a use writes, and those that exist. */
const lockFree = Effect.fnUntraced(function* (
  { distributed, sql }: ConnectionPool,
  uses: ReadonlyArray<UsedCredential>
) {
  /** With Citus, names the account of all uses, so that one node runs the statement. */
  const inAccount = (table: string) =>
    distributed ? sql`AND ${sql.literal(table)}.account_id = ${uses[0]?.account_id ?? null}` : sql``
  const wanted = referencesOf(sql, uses)
  const existing = (lock = sql``) => sql<CredentialReference>`
    SELECT credentials.account_id, credentials.id AS credential_id FROM credentials JOIN ${wanted}
    ON credentials.account_id = wanted.account_id AND credentials.id = wanted.credential_id
    ${inAccount("credentials")} ${lock}`
  const used = (lock = sql``) => sql<CredentialReference>`
    SELECT used.account_id, used.credential_id FROM credential_use AS used JOIN ${wanted}
    ON used.account_id = wanted.account_id AND used.credential_id = wanted.credential_id ${inAccount("used")} ${lock}`
  const unlocked = setOf(yield* existing(sql`FOR KEY SHARE OF credentials SKIP LOCKED`))
  const unlockedUses = setOf(yield* used(sql`FOR NO KEY UPDATE OF used SKIP LOCKED`))
  const lockedUses = setOf((yield* used()).filter((one) => !unlockedUses.has(one)))
  return {
    existing: setOf(yield* existing()),
    isFree: (one: CredentialReference) => unlocked.has(one) && !lockedUses.has(one)
  }
})

export const layer = Layer.effect(
  CredentialUse,
  Effect.map(Database, ({ reads, writes }) => ({
    store: (uses) => {
      // Not in the background, where cooldowns may wait for a lock.
      const { ask, distributed, sql } = writes
      /** The column of whichever row has the later time; the stored one if both are at the same time. */
      const ofLater = (column: string, time: string) => sql`
        ${sql(column)} = CASE WHEN used.${sql(time)} >= excluded.${sql(time)} OR excluded.${sql(time)} IS NULL
          THEN used.${sql(column)} ELSE excluded.${sql(column)} END`
      /** A column of the row of refused requests, unless a success followed them. */
      const unlessOver = (row: Statement.Fragment, column: string) => sql`
        CASE WHEN ${row}.last_refused_at
          > coalesce(greatest(used.last_succeeded_at, excluded.last_succeeded_at), '-infinity')
        THEN ${row}.${sql(column)} END`
      const inOrder = (column: string) => [unlessOver(sql`used`, column), unlessOver(sql`excluded`, column)] as const
      /** A time of a use, at most now: an instance's clock may be ahead, and the latest time counts. */
      const notAfterNow = (column: string) => sql`
        CASE WHEN use.${sql(column)} <> '' THEN least(use.${sql(column)}::timestamptz, now()) END`
      const [usedCount, newCount] = inOrder("refused_in_a_row")
      /** Merges as the domain's `mergeUses` does. */
      const merge = (uses: ReadonlyArray<UsedCredential>) => sql`
          INSERT INTO credential_use AS used
            (account_id, credential_id, last_leased_at, last_succeeded_at, last_failed_at, last_failure,
              last_failed_version, last_refused_at, last_refused_status, last_refused_code, refused_since,
              refused_in_a_row)
          SELECT credentials.account_id, credentials.id, ${notAfterNow("last_leased_at")},
            ${notAfterNow("last_succeeded_at")}, ${notAfterNow("last_failed_at")},
            nullif(use.last_failure, ''), nullif(use.last_failed_version, 0),
            ${notAfterNow("last_refused_at")}, nullif(use.last_refused_status, -1),
            nullif(use.last_refused_code, ''), ${notAfterNow("refused_since")}, use.refused_in_a_row
          FROM ${rowsOf(sql, uses)}
          JOIN credentials ON credentials.account_id = use.account_id AND credentials.id = use.credential_id
          ON CONFLICT (account_id, credential_id) DO UPDATE
          SET last_leased_at = greatest(used.last_leased_at, excluded.last_leased_at),
            last_succeeded_at = greatest(used.last_succeeded_at, excluded.last_succeeded_at),
            last_failed_at = greatest(used.last_failed_at, excluded.last_failed_at),
            last_refused_at = greatest(used.last_refused_at, excluded.last_refused_at),
            ${ofLater("last_failure", "last_failed_at")}, ${ofLater("last_failed_version", "last_failed_at")},
            ${ofLater("last_refused_status", "last_refused_at")}, ${ofLater("last_refused_code", "last_refused_at")},
            refused_since = least(${sql.csv(inOrder("refused_since"))}),
            refused_in_a_row = least(${longestRow}, coalesce(
              CASE WHEN used.last_refused_at < excluded.refused_since OR excluded.last_refused_at < used.refused_since
                THEN ${usedCount} + ${newCount} END,
              greatest(${usedCount}, ${newCount}, 0)))`
      const mergeUnlocked = Effect.fnUntraced(function* (uses: ReadonlyArray<UsedCredential>) {
        const { existing, isFree } = yield* lockFree(writes, uses)
        const free = uses.filter(isFree)
        if (free.length > 0) yield* merge(free)
        return uses.filter((use) => existing.has(use) && !isFree(use))
      }, sql.withTransaction)
      const batches = distributed ? Map.groupBy(uses, ({ account_id }) => account_id).values() : [uses]
      return Effect.map(
        Effect.forEach(batches, (batch) => ask(mergeUnlocked(batch), "credential_use.store")),
        (locked) => locked.flat()
      )
    },
    find: (account_id, ids) => {
      const { ask, sql } = reads
      const rows = sql<LastUse & { readonly credential_id: CredentialId }>`
        SELECT credential_id, (extract(epoch FROM last_leased_at) * 1000)::float8 AS last_leased_at,
          (extract(epoch FROM last_succeeded_at) * 1000)::float8 AS last_succeeded_at,
          (extract(epoch FROM last_failed_at) * 1000)::float8 AS last_failed_at, last_failure, last_failed_version,
          (extract(epoch FROM last_refused_at) * 1000)::float8 AS last_refused_at, last_refused_status,
          last_refused_code, (extract(epoch FROM refused_since) * 1000)::float8 AS refused_since, refused_in_a_row
        FROM credential_use WHERE account_id = ${account_id} AND credential_id = ANY(${ids}::uuid[])`
      return Effect.map(
        ask(rows, "credential_use.find", account_id),
        (rows) => new Map(rows.map(({ credential_id, ...use }) => [credential_id, use]))
      )
    }
  }))
)
