import { Effect } from "effect"
import type { AccountId } from "../../domain/Identifiers.ts"
import type { ConnectionPool } from "../connection/ConnectionPool.ts"

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
