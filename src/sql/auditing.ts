import { Effect } from "effect"
import type { SqlClient } from "effect/sql"
import { type Actor, CurrentActor } from "../domain/Actor.ts"
import type { AuditAct } from "../domain/AuditEvent.ts"

const eventOf = (actor: Actor, act: AuditAct) => JSON.stringify({ ...act, actor })

/** Writes what the `CurrentActor` does as one entry, in the transaction in which it is done. */
export const record = (sql: SqlClient.SqlClient, acts: ReadonlyArray<AuditAct>) =>
  Effect.flatMap(CurrentActor, (actor) =>
    acts.length === 0
      ? Effect.void
      : sql`INSERT INTO audit_entries (events) VALUES (${`[${acts.map((act) => eventOf(actor, act)).join()}]`}::json)`
  )

/** What to tell of a row that is inserted. */
export interface Audited {
  readonly actor: Actor
  readonly act: AuditAct
}

/**
 * The INSERT of an entry for a statement WITH `made`, which answers with the rows that it has inserted. One row has an
 * event if it was inserted. Several have their events if all were; else the entry is NULL, which the table refuses, and
 * the statement is to be made again row by row.
 */
export const recordMade = (sql: SqlClient.SqlClient, audited: ReadonlyArray<Audited>) => {
  const events = `[${audited.map(({ act, actor }) => eventOf(actor, act)).join()}]`
  return audited.length === 1
    ? sql`INSERT INTO audit_entries (events) SELECT ${events}::json FROM made`
    : sql`
        INSERT INTO audit_entries (events)
        SELECT CASE WHEN count(*) = ${audited.length}::int THEN ${events}::json END FROM made`
}
