import { Effect, Option } from "effect"
import type { AccountId, CredentialId } from "../../domain/Identifiers.ts"
import type { CredentialOrder } from "../../port/CredentialRepository.ts"
import { actingPrincipal } from "../../domain/Principal.ts"
import { LinkClosed } from "../../port/Links.ts"
import { record } from "../audit/auditing.ts"
import type { ConnectionPool } from "../connection/ConnectionPool.ts"
import { closed, whileOpen } from "../rows/principalRows.ts"

interface Placed {
  readonly id: CredentialId
  readonly sort_order: number
  readonly created_at: Date
}

/** The order in which credentials are tried, as `sort_order` documents it. */
const byPlace = (one: Placed, other: Placed) =>
  one.sort_order - other.sort_order ||
  one.created_at.getTime() - other.created_at.getTime() ||
  (one.id < other.id ? -1 : 1)

/**
 * Stores the order of all credentials of a workspace and provider in one transaction; an order that equals
 * the stored one writes nothing. A credential created meanwhile comes last: its `sort_order` follows the highest before.
 */
export const reorderCredentials =
  ({ ask, sql }: ConnectionPool) =>
  (account_id: AccountId, { ids, provider, workspace_id }: CredentialOrder) => {
    const reorder = Effect.gen(function* () {
      const place = sql`account_id = ${account_id} AND workspace_id = ${workspace_id} AND provider = ${provider}`
      yield* sql`SELECT FROM pools WHERE ${place} FOR NO KEY UPDATE`
      const rows = yield* sql<Placed>`
        SELECT id, sort_order, created_at FROM credentials
        WHERE ${place} ORDER BY id FOR UPDATE`
      const stored = Array.from(rows)
        .sort(byPlace)
        .map(({ id }) => id)
      const given = new Set(ids)
      const all = new Set(stored)
      const missing = stored.filter((id) => !given.has(id))
      const foreign = ids.filter((id) => !all.has(id))
      if (missing.length > 0 || foreign.length > 0) return Option.some({ missing, foreign })
      if (stored.every((id, index) => id === ids[index])) return Option.none()
      yield* sql`
        UPDATE credentials SET sort_order = place - 1
        FROM unnest(${ids}::uuid[]) WITH ORDINALITY AS wanted (wanted_id, place)
        WHERE account_id = ${account_id} AND id = wanted_id`
      yield* sql`UPDATE pools SET version = version + 1 WHERE ${place}`
      yield* record(sql, [
        { action: "credential.reorder", account_id, workspace_id, provider, credential_ids: [...ids] }
      ])
      return Option.none()
    })
    return Effect.flatMap(actingPrincipal, (principal) => {
      const written = whileOpen(sql, principal, account_id, sql.withTransaction(reorder), () => undefined)
      return Effect.flatMap(ask(written, "credentials.reorder"), (result) =>
        result === closed ? Effect.die(new LinkClosed()) : Effect.succeed(result)
      )
    })
  }
