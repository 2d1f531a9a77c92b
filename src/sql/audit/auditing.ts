import { Effect } from "effect"
import type { SqlClient } from "effect/sql"
import type { AuditAct } from "../../domain/AuditEvent.ts"
import type { AccountId } from "../../domain/Identifiers.ts"
import { actingPrincipal, type Actor, actorOf } from "../../domain/Principal.ts"

/** The events of an entry as JSON: each act with its actor. */
export const entryOf = (actor: Actor, acts: ReadonlyArray<AuditAct>) =>
  JSON.stringify(acts.map((act) => ({ ...act, actor })))

/** The account of an act, or '' if it concerns none. */
const accountOf = (act: AuditAct) => ("account_id" in act ? act.account_id : "")

const subjectOf = (act: AuditAct) => `${accountOf(act)} ${"credential_id" in act ? act.credential_id : ""}`

/**
 * Records acts of the acting principal in the transaction that performs them: one entry per credential, one for the
 * other acts of each account, and one for the acts that concern no account, in order of first mention.
 */
export const record = (sql: SqlClient.SqlClient, acts: ReadonlyArray<AuditAct>) =>
  Effect.flatMap(actingPrincipal, (principal) => {
    const actor = actorOf(principal)
    const entries = Array.from(Map.groupBy(acts, subjectOf).values())
    if (entries.length === 0) return Effect.void
    return Effect.asVoid(sql`
      INSERT INTO audit_entries (account_id, events) SELECT nullif(account_id, '')::uuid, events::json
      FROM unnest(
        ${entries.map(([act]) => act && accountOf(act))}::text[], ${entries.map((acts) => entryOf(actor, acts))}::text[]
      ) WITH ORDINALITY AS entry (account_id, events, n) ORDER BY n`)
  })

/** Records an act for each row, like `record`. */
export const recordEach = <Row>(sql: SqlClient.SqlClient, rows: ReadonlyArray<Row>, actOf: (row: Row) => AuditAct) =>
  record(sql, rows.map(actOf))

interface Entry {
  readonly account_id: string | null
  /** Identifies the write, which a retry repeats. */
  readonly operation: string
  /** The events, from `entryOf`. */
  readonly entry: string
}

/** Inserts an entry, once per account and operation, so that a retry inserts no second one. */
export const insertEntry = (sql: SqlClient.SqlClient, { account_id, entry, operation }: Entry) =>
  Effect.asVoid(sql`
    INSERT INTO audit_entries (account_id, operation, events) VALUES (${account_id}, ${operation}, ${entry}::json)
    ON CONFLICT (account_id, operation) DO NOTHING`)

/** Records an act that concerns no account, once per operation. */
export const recordOnce = (sql: SqlClient.SqlClient, operation: string, act: AuditAct) =>
  Effect.flatMap(actingPrincipal, (principal) =>
    insertEntry(sql, { account_id: null, operation, entry: entryOf(actorOf(principal), [act]) })
  )

/** Whether the account has an entry of the operation: an earlier attempt has committed. */
export const wasRecorded = (sql: SqlClient.SqlClient, account_id: AccountId, operation: string) =>
  Effect.map(
    sql`SELECT 1 FROM audit_entries WHERE account_id = ${account_id} AND operation = ${operation}`,
    ({ length }) => length > 0
  )
