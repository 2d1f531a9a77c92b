import { Effect } from "effect"
import type { SqlClient } from "effect/sql"
import type { AccountId, CredentialId, LinkId } from "../../domain/Identifiers.ts"
import type { Principal } from "../../domain/Principal.ts"
import type { ConnectionPool } from "../connection/ConnectionPool.ts"
import type { Query } from "../connection/Query.ts"

/**
 * With Citus, locks an account: inserts of its API keys and links share the lock, and its erasure excludes them.
 * Without Citus, foreign keys do the same. A lock on the account's row would need a right that the service lacks.
 */
export const lockDistributedAccount = (
  { distributed, sql }: Pick<ConnectionPool, "distributed" | "sql">,
  account_id: AccountId,
  mode: "exclusive" | "shared"
) => {
  const lockFunction = mode === "shared" ? "pg_advisory_xact_lock_shared" : "pg_advisory_xact_lock"
  const lock = sql`SELECT ${sql.literal(lockFunction)}(hashtextextended(${account_id}, 0))`
  return distributed ? Effect.asVoid(lock) : Effect.void
}

/** The columns of a link's key pair: public key and sealed private key. */
export const linkKeyColumns = ["public_key", "kek_id", "wrapped_dek", "sealed"] as const

/** The assignments that delete a link's key pair. */
export const clearLinkKeys = (sql: SqlClient.SqlClient) =>
  sql.csv(linkKeyColumns.map((column) => sql`${sql(column)} = NULL`))

/** The condition that a row is this link, and that the link is open. */
export const isOpenLink = (sql: SqlClient.SqlClient, account_id: AccountId, link_id: LinkId) =>
  sql`account_id = ${account_id} AND id = ${link_id} AND ended IS NULL AND expires_at > now()`

/** Locks a link until the transaction ends, if it is open. Returns whether it is. */
export const lockOpenLink = (sql: SqlClient.SqlClient, account_id: AccountId, link_id: LinkId) =>
  Effect.map(
    sql`SELECT 1 FROM links WHERE ${isOpenLink(sql, account_id, link_id)} FOR UPDATE`,
    ({ length }) => length > 0
  )

/** Stands for the result of a write if its principal is a link that is no longer open. */
export const linkClosed = Symbol("linkClosed")

/**
 * Runs a write for its principal; for a link that is not open, returns `linkClosed` instead. `storedIdIn` reads the id
 * of the credential that the write stored, if any. Invariants: a link's write commits before the link's revocation is
 * answered, or not at all; and a link for one write ends in that write's transaction, with the id of the credential.
 */
export const whileLinkOpen = <A>(
  sql: SqlClient.SqlClient,
  principal: Principal,
  account_id: AccountId,
  write: Query<A>,
  storedIdIn: (result: A) => CredentialId | undefined
): Query<A | typeof linkClosed> => {
  if (principal.kind !== "link") return write
  const { link_id } = principal
  const writeForLink = Effect.gen(function* () {
    if (!(yield* lockOpenLink(sql, account_id, link_id))) return linkClosed
    const result = yield* write
    const stored_id = storedIdIn(result)
    if (stored_id !== undefined) {
      yield* sql`
        UPDATE links SET ended = 'used', credential_id = ${stored_id}, ${clearLinkKeys(sql)}
        WHERE ${isOpenLink(sql, account_id, link_id)} AND purpose IN ('connect', 'replace')`
    }
    return result
  })
  return sql.withTransaction(writeForLink)
}
