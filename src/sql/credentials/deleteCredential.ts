import { Effect, Option } from "effect"
import { CurrentActor } from "../../domain/CurrentCaller.ts"
import type { AccountId, CredentialId, WorkspaceId } from "../../domain/Identifiers.ts"
import { entryOf, recordChange, recordsOf } from "../audit/auditing.ts"
import type { ConnectionPool } from "../connection/ConnectionPool.ts"

/** A credential before its deletion, and the last audit entry then. */
interface BeforeDelete {
  readonly workspace_id: WorkspaceId
  readonly last_seq: string
}

/**
 * Deletes a row. If it is gone when the statement runs again, because the answer to an earlier attempt was lost, then
 * the audit log knows whether that attempt deleted it: only its entry is newer than the moment when the row was still
 * there. The lock makes that check a commit of its own, which waits for the synchronous replica in case the earlier one
 * did not; the serving role may lock no row of the log.
 */
export const deleteCredential = (pool: ConnectionPool) => {
  const { ask, sql } = pool
  return (account_id: AccountId, id: CredentialId) =>
    Effect.flatMap(CurrentActor, (actor) => {
      const row = sql`account_id = ${account_id} AND id = ${id}`
      let before = Option.none<BeforeDelete>()
      let wasSent = false
      const find = Effect.suspend(() =>
        Option.isSome(before)
          ? Effect.succeed(before)
          : Effect.map(
              sql<BeforeDelete>`
                SELECT workspace_id, (SELECT coalesce(max(seq), 0)::text FROM audit_entries) AS last_seq
                FROM credentials WHERE ${row}`,
              ([found]) => (before = Option.fromUndefinedOr(found))
            )
      )
      const remove = Effect.fnUntraced(function* ({ last_seq, workspace_id }: BeforeDelete) {
        const acts = [{ action: "credential.delete", account_id, workspace_id, credential_id: id }] as const
        const mayBeDone = wasSent
        wasSent = true
        const deleted = sql`DELETE FROM credentials WHERE ${row} RETURNING id`
        const changed = yield* recordChange(pool, deleted, account_id, entryOf(actor, acts))
        if (changed.length > 0 || !mayBeDone) return changed.length > 0
        const done = yield* sql`
          SELECT id FROM workspaces WHERE account_id = ${account_id} AND id = ${workspace_id}
          AND EXISTS (${recordsOf(sql, last_seq, account_id, actor, acts)}) FOR KEY SHARE`
        return done.length > 0
      })
      return ask(
        Effect.flatMap(find, Option.match({ onNone: () => Effect.succeed(false), onSome: remove })),
        "credentials.delete"
      )
    })
}
