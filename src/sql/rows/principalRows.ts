import { Effect } from "effect"
import type { SqlClient } from "effect/sql"
import type { AccountId, CredentialId, LinkId } from "../../domain/Identifiers.ts"
import type { Principal } from "../../domain/Principal.ts"
import type { ConnectionPool } from "../connection/ConnectionPool.ts"
import type { Query } from "../connection/Query.ts"

/**
 * Has a new API key or link wait for an erasure of its account, and an erasure for new ones, where Citus holds the account on
 * another node and no foreign key does so. A lock on the account's row would need a right that a service need not have.
 */
export const lockApiKeys = (
  { distributed, sql }: Pick<ConnectionPool, "distributed" | "sql">,
  account_id: AccountId,
  mode: "" | "_shared"
) => {
  const lock = sql`SELECT ${sql.literal(`pg_advisory_xact_lock${mode}`)}(hashtextextended(${account_id}, 0))`
  return distributed ? Effect.asVoid(lock) : Effect.void
}

/** The columns of the key pair of a link: public, and private as it is sealed. */
export const linkKeyColumns = ["public_key", "kek_id", "wrapped_dek", "sealed"] as const

/** Sets them to nothing. */
export const noKeys = (sql: SqlClient.SqlClient) => sql.csv(linkKeyColumns.map((column) => sql`${sql(column)} = NULL`))

/** The condition of an open link. */
export const openLink = (sql: SqlClient.SqlClient, account_id: AccountId, link_id: LinkId) =>
  sql`account_id = ${account_id} AND id = ${link_id} AND ended IS NULL AND expires_at > now()`

/** Whether a link is open; it stays so until the transaction ends. */
export const lockOpenLink = (sql: SqlClient.SqlClient, account_id: AccountId, link_id: LinkId) =>
  Effect.map(
    sql`SELECT 1 FROM links WHERE ${openLink(sql, account_id, link_id)} FOR UPDATE`,
    ({ length }) => length > 0
  )

/** Ends a link that is for one act, on the credential that it names from then on. */
const useLink = (sql: SqlClient.SqlClient, account_id: AccountId, link_id: LinkId, id: CredentialId) => sql`
  UPDATE links SET ended = 'used', credential_id = ${id}, ${noKeys(sql)}
  WHERE ${openLink(sql, account_id, link_id)} AND purpose IN ('connect', 'replace')`

/** The result of a write whose principal is a link that is not open any more: nothing was written. */
export const closed = Symbol("closed")

/**
 * Makes a write of the account for its principal. Invariant: what a link writes is committed before its revocation is
 * answered, or not at all, and a link that serves once ends in the transaction of what it stores.
 */
export const whileOpen = <A>(
  sql: SqlClient.SqlClient,
  principal: Principal,
  account_id: AccountId,
  write: Query<A>,
  storedBy: (result: A) => CredentialId | undefined
): Query<A | typeof closed> => {
  if (principal.kind !== "link") return write
  const { link_id } = principal
  return sql.withTransaction(
    Effect.gen(function* () {
      if (!(yield* lockOpenLink(sql, account_id, link_id))) return closed
      const result = yield* write
      const stored = storedBy(result)
      if (stored !== undefined) yield* useLink(sql, account_id, link_id, stored)
      return result
    })
  )
}
