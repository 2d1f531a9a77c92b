import { Effect } from "effect"
import type { SqlClient, Statement } from "effect/sql"
import type { AuditAct } from "../../domain/AuditEvent.ts"
import { type Actor, CurrentActor } from "../../domain/CurrentCaller.ts"
import type { AccountId } from "../../domain/Identifiers.ts"
import type { ConnectionPool } from "../connection/ConnectionPool.ts"

const eventOf = (actor: Actor, act: AuditAct) => JSON.stringify({ ...act, actor })

/** The entry that records acts of one account. */
export const entryOf = (actor: Actor, acts: ReadonlyArray<AuditAct>) =>
  `[${acts.map((act) => eventOf(actor, act)).join()}]`

/** What to record about an inserted row. */
export interface Audited {
  readonly actor: Actor
  readonly act: AuditAct
}

/** One entry per account, in order of first mention, and one for the acts that concern no account. */
const entriesOf = (audited: ReadonlyArray<Audited>) => {
  const events = new Map<string | null, Array<string>>()
  for (const { act, actor } of audited) {
    const account_id = "account_id" in act ? act.account_id : null
    const known = events.get(account_id)
    if (known === undefined) events.set(account_id, [eventOf(actor, act)])
    else known.push(eventOf(actor, act))
  }
  return Array.from(events, ([account_id, list]) => ({ account_id, events: `[${list.join()}]` }))
}

/** Records acts of the `CurrentActor` in the transaction that performs them. */
export const record = (sql: SqlClient.SqlClient, acts: ReadonlyArray<AuditAct>) => recordEach(sql, acts, (act) => act)

/** Records an act for each row that a statement has changed. */
export const recordEach = <Row>(sql: SqlClient.SqlClient, rows: ReadonlyArray<Row>, actOf: (row: Row) => AuditAct) =>
  Effect.flatMap(CurrentActor, (actor) =>
    Effect.forEach(
      entriesOf(rows.map((row) => ({ act: actOf(row), actor }))),
      ({ account_id, events }) =>
        sql`INSERT INTO audit_entries (account_id, events) VALUES (${account_id}, ${events}::json)`,
      { discard: true }
    )
  )

/** The number of the newest entry, for `recordOnce` and `recordsOf`. */
export const newestEntry = (sql: SqlClient.SqlClient) =>
  Effect.map(
    sql<{ seq: string }>`SELECT coalesce(max(seq), 0)::text AS seq FROM audit_entries`,
    ([row]) => row?.seq ?? "0"
  )

/** Records an act that concerns no account, unless an entry after `after` holds it already: the statement may run twice. */
export const recordOnce = (sql: SqlClient.SqlClient, after: string, act: AuditAct) =>
  Effect.flatMap(CurrentActor, (actor) => {
    const events = `[${eventOf(actor, act)}]`
    const found = sql`
      SELECT 1 FROM audit_entries WHERE seq > ${after}::bigint AND events::text = ${events}::text LIMIT 1`
    return Effect.flatMap(found, ({ length }) => (length > 0 ? Effect.void : Effect.asVoid(record(sql, [act]))))
  })

/** The INSERT of an account's entry, for a statement whose CTE `inserted` returns the row that it inserted, if any. */
export const recordInsert = (sql: SqlClient.SqlClient, account_id: string, entry: string) => sql`
  INSERT INTO audit_entries (account_id, events) SELECT ${account_id}::uuid, ${entry}::json FROM inserted`

/**
 * The INSERT of entries, for a statement whose CTE `inserted` returns the rows that it inserted. If only some of them were
 * inserted, the entries are NULL, which the table rejects: the caller must repeat the statement row by row.
 */
export const recordInserts = (sql: SqlClient.SqlClient, audited: ReadonlyArray<Audited>) => {
  const entries = entriesOf(audited)
  const accounts = sql`${entries.map(({ account_id }) => account_id)}::uuid[]`
  const events = sql`${entries.map(({ events }) => events)}::text[]`
  const given = sql`unnest(${accounts}, ${events}) AS given (account_id, events)`
  return sql`
    INSERT INTO audit_entries (account_id, events)
    SELECT account_id, CASE WHEN (SELECT count(*) FROM inserted) = ${audited.length}::int THEN events::json END FROM ${given}`
}

/** A statement that returns the `id` of the row that it changes, if any, with an INSERT of the account's entry about it. */
export const withEntry = (
  sql: SqlClient.SqlClient,
  change: Statement.Fragment,
  account_id: string,
  entry: string
) => sql`
  WITH changed AS (${change}), recorded AS (
    INSERT INTO audit_entries (account_id, events) SELECT ${account_id}::uuid, ${entry}::json FROM changed
  )
  SELECT id FROM changed`

/** Runs such a statement, and records the entry. */
export const recordChange = (
  { distributed, sql }: ConnectionPool,
  change: Statement.Fragment,
  account_id: AccountId,
  entry: string
) => {
  if (!distributed) return withEntry(sql, change, account_id, entry)
  const recorded = sql`INSERT INTO audit_entries (account_id, events) VALUES (${account_id}, ${entry}::json)`
  const both = Effect.flatMap(sql`${change}`, (rows) =>
    rows.length > 0 ? Effect.as(recorded, rows) : Effect.succeed(rows)
  )
  return sql.withTransaction(both)
}

/** The entries after the number `after` that record these acts of this actor in this account and no others. */
export const recordsOf = (
  sql: SqlClient.SqlClient,
  after: string,
  account_id: AccountId,
  actor: Actor,
  acts: ReadonlyArray<AuditAct>
) =>
  sql`
    SELECT seq FROM audit_entries WHERE account_id = ${account_id} AND seq > ${after}::bigint
    AND events::text = ${entryOf(actor, acts)}::text`
