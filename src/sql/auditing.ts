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

/** A row to insert and what to tell of it. */
export interface Audited {
  readonly id: string
  readonly actor: Actor
  readonly act: AuditAct
}

/**
 * The INSERT of an entry for a statement WITH `made`, which answers with the ids of the rows that it has inserted: those
 * rows have an event, the others none.
 */
export const recordMade = (sql: SqlClient.SqlClient, audited: ReadonlyArray<Audited>) => {
  const events = new Map(audited.map(({ act, actor, id }) => [id, eventOf(actor, act)]))
  const [only, another] = events.values()
  return another === undefined
    ? sql`INSERT INTO audit_entries (events) SELECT ${`[${only}]`}::json FROM made`
    : sql`
        INSERT INTO audit_entries (events)
        SELECT ('[' || string_agg(event, ',') || ']')::json
        FROM made JOIN unnest(${[...events.keys()]}::uuid[], ${[...events.values()]}::text[]) AS told (id, event) USING (id)
        HAVING count(*) > 0`
}
