import { Effect } from "effect"
import type { AuditAct } from "../domain/AuditEvent.ts"
import { ChangeableField } from "../domain/CredentialChanges.ts"
import { CurrentActor } from "../domain/CurrentCaller.ts"
import type { AccountId } from "../domain/Identifiers.ts"
import type { CredentialUpdate } from "../port/CredentialRepository.ts"
import { recordChange } from "./auditing.ts"
import type { ConnectionPool } from "./connection/ConnectionPool.ts"

/** The columns that an update writes, beside those of the key. */
const policyColumns = ["label", ...ChangeableField.literals.filter((field) => field !== "key")] as const

const actsOf = (
  account_id: AccountId,
  { credential: { id, workspace_id }, fields, key_version, revision }: CredentialUpdate
): ReadonlyArray<AuditAct> => {
  const ids = { account_id, workspace_id, credential_id: id }
  return [
    { action: "credential.update", ...ids, revision: revision + 1, fields },
    ...(fields.includes("key") ? [{ action: "credential.rotate", ...ids, key_version } as const] : [])
  ]
}

/**
 * Updates a row that still has the revision that was read. If it has another one, an earlier attempt at the same update
 * may have stored it and its answer was lost: then the row holds what this attempt writes. Rewrapping may have changed `wrapped_dek` since, but
 * `sealed` is different for every seal. The lock makes the check a commit of its own, which waits for the synchronous
 * replica in case the earlier one did not.
 */
export const updateCredential = (pool: ConnectionPool) => (account_id: AccountId, update: CredentialUpdate) =>
  Effect.flatMap(CurrentActor, (actor) => {
    const { ask, sql } = pool
    const { credential, key_version, revision, sealed } = update
    const row = sql`account_id = ${account_id} AND id = ${credential.id}`
    const policy = policyColumns.map((column) => [sql(column), sql`${credential[column]}`] as const)
    const key =
      sealed === undefined
        ? sql``
        : sql`kek_id = ${sealed.kek_id}, wrapped_dek = ${sealed.wrapped_dek}, sealed = ${sealed.sealed},`
    const change = sql`
        UPDATE credentials SET ${sql.csv(policy.map(([column, value]) => sql`${column} = ${value}`))}, ${key}
          key_version = ${key_version}, revision = revision + 1
        WHERE ${row} AND revision = ${revision} RETURNING id`
    const written = recordChange(pool, change, account_id, actor, actsOf(account_id, update))
    const isOurs =
      sealed === undefined
        ? sql.and([
            sql`revision = ${revision + 1}`,
            ...policy.map(([column, value]) => sql`${column} IS NOT DISTINCT FROM ${value}`)
          ])
        : sql`sealed = ${sealed.sealed}`
    const query = Effect.flatMap(written, (rows) =>
      rows.length > 0 ? Effect.succeed(rows) : sql`SELECT id FROM credentials WHERE ${row} AND ${isOurs} FOR UPDATE`
    )
    return Effect.map(ask(query, "credentials.update"), (rows) => rows.length > 0)
  })
