import { Effect } from "effect"
import type { SqlClient } from "effect/sql"
import type { AccountId, CredentialId } from "../../domain/Identifiers.ts"
import type { Principal } from "../../domain/Principal.ts"
import type { Query } from "../connection/Query.ts"
import { lockOpenLink, useLink } from "./LinkRepositoryLive.ts"

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
