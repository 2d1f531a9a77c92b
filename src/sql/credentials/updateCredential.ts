import { Effect } from "effect"
import type { Statement } from "effect/sql"
import type { AuditAct } from "../../domain/AuditEvent.ts"
import { ChangeableField } from "../../domain/CredentialChanges.ts"
import { type Actor, CurrentActor } from "../../domain/CurrentCaller.ts"
import type { AccountId } from "../../domain/Identifiers.ts"
import type { CredentialUpdate } from "../../port/CredentialRepository.ts"
import { entryOf, recordChange, withEntry } from "../audit/auditing.ts"
import { compileOnce } from "../connection/compileOnce.ts"
import type { ConnectionPool } from "../connection/ConnectionPool.ts"
import { sizeOf, toJson } from "./credentialRows.ts"
import { type CredentialKey, cursorOf } from "../connection/rowOrder.ts"

/** The columns that an update writes, beside those of the key. */
const policyColumns = ["label", ...ChangeableField.literals.filter((field) => field !== "key")] as const
const keyColumns = ["kek_id", "wrapped_dek", "sealed"] as const
const parameters = ["account_id", "id", "revision", "key_version", ...policyColumns, ...keyColumns, "entry"] as const
type Parameter = (typeof parameters)[number]

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

/** The values of `parameters`; those of the key are null if it stays as it is. */
const valuesOf = (account_id: AccountId, actor: Actor, update: CredentialUpdate) => {
  const { credential, key_version, revision, sealed = { kek_id: null, wrapped_dek: null, sealed: null } } = update
  return {
    ...credential,
    ...sealed,
    account_id,
    key_version,
    revision,
    entry: entryOf(actor, actsOf(account_id, update))
  }
}
type Values = ReturnType<typeof valuesOf>

/**
 * Updates a row that still has the revision that was read. A batch passes over rows that another transaction has locked,
 * so that it waits for none: what it has not updated is tried alone. If a row has another revision, an earlier attempt at
 * the same update may have stored it and its answer was lost: then the row holds what this attempt writes. Rewrapping may
 * have changed `wrapped_dek` since, but `sealed` is different for every seal. The lock makes the check a commit of its own,
 * which waits for the synchronous replica in case the earlier one did not.
 */
export const updateCredential = (pool: ConnectionPool) => {
  const { ask, distributed, sql } = pool
  const assignments = (of: (column: Parameter) => Statement.Fragment) =>
    sql.csv([
      ...policyColumns.map((column) => sql`${sql(column)} = ${of(column)}`),
      ...keyColumns.map((column) => sql`${sql(column)} = coalesce(${of(column)}, credentials.${sql(column)})`),
      sql`key_version = ${of("key_version")}, revision = credentials.revision + 1`
    ])
  const change = (of: (column: Parameter) => Statement.Fragment) => sql`
    UPDATE credentials SET ${assignments(of)}
    WHERE account_id = ${of("account_id")} AND id = ${of("id")} AND revision = ${of("revision")} RETURNING account_id, id`
  const compiled = compileOnce(sql, parameters, (names) =>
    withEntry(
      sql,
      change((column) => sql`${names[column]}`),
      names.account_id,
      names.entry
    )
  )
  const write = (values: Values) =>
    distributed
      ? recordChange(
          pool,
          change((column) => sql`${values[column]}`),
          values.account_id,
          values.entry
        )
      : compiled(values)

  const batched = pool.batch<Values, boolean>({
    operation: "credentials.update",
    sizeOf,
    one: (values) => Effect.map(write(values), ({ length }) => length > 0),
    many: (all) => {
      const rowOf = new Map(all.map((values) => [cursorOf(values), values]))
      const rows = Array.from(rowOf.values())
      const given = sql`json_populate_recordset(NULL::credentials, ${toJson(rows.map(({ entry: _entry, ...row }) => row))}::json) AS given`
      const entries = sql`unnest(
        ${rows.map(({ account_id }) => account_id)}::uuid[], ${rows.map(({ id }) => id)}::uuid[],
        ${rows.map(({ entry }) => entry)}::text[]
      ) AS entries (account_id, id, entry)`
      const written = sql<CredentialKey>`
        WITH changed AS (
          UPDATE credentials SET ${assignments((column) => sql`given.${sql(column)}`)}
          FROM ${given}, LATERAL (
            SELECT account_id, id FROM credentials AS unlocked
            WHERE account_id = given.account_id AND id = given.id AND revision = given.revision FOR NO KEY UPDATE SKIP LOCKED
          ) AS unlocked
          WHERE credentials.account_id = unlocked.account_id AND credentials.id = unlocked.id
          RETURNING credentials.account_id, credentials.id
        ), recorded AS (
          INSERT INTO audit_entries (account_id, events)
          SELECT account_id, entry::json FROM ${entries} JOIN changed USING (account_id, id)
        )
        SELECT account_id, id FROM changed`
      return Effect.map(written, (changed) => {
        const stored = new Set(changed.map(cursorOf))
        return all.map((values) => rowOf.get(cursorOf(values)) === values && stored.has(cursorOf(values)))
      })
    }
  })

  const alone = (values: Values) => {
    const isOurs =
      values.sealed === null
        ? sql.and([
            sql`revision = ${values.revision + 1}`,
            ...policyColumns.map((column) => sql`${sql(column)} IS NOT DISTINCT FROM ${values[column]}`)
          ])
        : sql`sealed = ${values.sealed}`
    const query = Effect.flatMap(write(values), (rows) =>
      rows.length > 0
        ? Effect.succeed(rows)
        : sql`
          SELECT id FROM credentials
          WHERE account_id = ${values.account_id} AND id = ${values.id} AND ${isOurs} FOR UPDATE`
    )
    return Effect.map(ask(query, "credentials.update"), (rows) => rows.length > 0)
  }

  return (account_id: AccountId, update: CredentialUpdate) =>
    Effect.flatMap(CurrentActor, (actor) => {
      const values = valuesOf(account_id, actor, update)
      return Effect.flatMap(batched(values), (stored) => (stored ? Effect.succeed(true) : alone(values)))
    })
}
