import { Effect } from "effect"
import type { SqlClient } from "effect/sql"
import { type Actor, CurrentActor } from "../domain/Actor.ts"
import type { AuditAct } from "../domain/AuditEvent.ts"

const eventOf = (actor: Actor, act: AuditAct) => JSON.stringify({ ...act, actor })

/** Records what the `CurrentActor` does as one entry, in the same transaction. */
export const record = (sql: SqlClient.SqlClient, acts: ReadonlyArray<AuditAct>) =>
  Effect.flatMap(CurrentActor, (actor) =>
    acts.length === 0
      ? Effect.void
      : sql`INSERT INTO audit_entries (events) VALUES (${`[${acts.map((act) => eventOf(actor, act)).join()}]`}::json)`
  )

/** Records an act in one statement that may run again: once, among the entries after the number `after`. */
export const recordOnce = (sql: SqlClient.SqlClient, after: string, act: AuditAct) =>
  Effect.flatMap(CurrentActor, (actor) => {
    const events = `[${eventOf(actor, act)}]`
    return sql`
      INSERT INTO audit_entries (events) SELECT ${events}::json
      WHERE NOT EXISTS (SELECT FROM audit_entries WHERE seq > ${after}::bigint AND events::text = ${events}::text)`
  })

/** What to record about an inserted row. */
export interface Audited {
  readonly actor: Actor
  readonly act: AuditAct
}

/**
 * The INSERT of an entry, for a statement whose CTE `made` returns the rows that it inserted. A single row is recorded
 * if it was inserted. If not all of several were, the entry is NULL, which the table rejects: the caller must repeat
 * the statement row by row.
 */
export const recordMade = (sql: SqlClient.SqlClient, audited: ReadonlyArray<Audited>) => {
  const events = `[${audited.map(({ act, actor }) => eventOf(actor, act)).join()}]`
  return audited.length === 1
    ? sql`INSERT INTO audit_entries (events) SELECT ${events}::json FROM made`
    : sql`
        INSERT INTO audit_entries (events)
        SELECT CASE WHEN count(*) = ${audited.length}::int THEN ${events}::json END FROM made`
}
