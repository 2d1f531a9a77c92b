import { Effect } from "effect"
import type { SqlClient } from "effect/sql"
import type { AuditAct } from "../../domain/AuditEvent.ts"
import { type Actor, CurrentActor } from "../../domain/CurrentCaller.ts"
import type { AccountId } from "../../domain/Identifiers.ts"

const eventOf = (actor: Actor, act: AuditAct) => JSON.stringify({ ...act, actor })

/** The entry that records acts of one account. */
export const entryOf = (actor: Actor, acts: ReadonlyArray<AuditAct>) =>
  `[${acts.map((act) => eventOf(actor, act)).join()}]`

interface Audited {
  readonly actor: Actor
  readonly act: AuditAct
}

/** The account of an act, or '' if it concerns none. */
const accountOf = (act: AuditAct) => ("account_id" in act ? act.account_id : "")

/** One entry for each credential and one for the other acts of each account, in order of first mention, and one for the acts that concern no account. */
const entriesOf = (audited: ReadonlyArray<Audited>) => {
  const nameOf = ({ act }: Audited) => `${accountOf(act)} ${"credential_id" in act ? act.credential_id : ""}`
  return Array.from(Map.groupBy(audited, nameOf).values(), (some) => ({
    account_id: some.map(({ act }) => accountOf(act))[0] ?? "",
    events: `[${some.map(({ act, actor }) => eventOf(actor, act)).join()}]`
  }))
}

/** Records acts of the `CurrentActor` in the transaction that performs them. */
export const record = (sql: SqlClient.SqlClient, acts: ReadonlyArray<AuditAct>) => recordEach(sql, acts, (act) => act)

/** Records an act for each row that a statement has changed. */
export const recordEach = <Row>(sql: SqlClient.SqlClient, rows: ReadonlyArray<Row>, actOf: (row: Row) => AuditAct) =>
  Effect.flatMap(CurrentActor, (actor) => {
    const entries = entriesOf(rows.map((row) => ({ act: actOf(row), actor })))
    if (entries.length === 0) return Effect.void
    return Effect.asVoid(sql`
      INSERT INTO audit_entries (account_id, events) SELECT nullif(account_id, '')::uuid, events::json
      FROM unnest(
        ${entries.map(({ account_id }) => account_id)}::text[], ${entries.map(({ events }) => events)}::text[]
      ) WITH ORDINALITY AS entry (account_id, events, n) ORDER BY n`)
  })

/** The entry of a write of one account. */
interface Entry {
  readonly account_id: string
  readonly operation: string
  readonly entry: string
}

export const insertEntry = (sql: SqlClient.SqlClient, { account_id, entry, operation }: Entry) =>
  sql`INSERT INTO audit_entries (account_id, operation, events) VALUES (${account_id}, ${operation}, ${entry}::json)`

/** Whether an operation on an account is recorded. */
export const wasRecorded = (sql: SqlClient.SqlClient, account_id: AccountId, operation: string) =>
  Effect.map(
    sql`SELECT 1 FROM audit_entries WHERE account_id = ${account_id} AND operation = ${operation}`,
    ({ length }) => length > 0
  )

/** Records an act that concerns no account, once for its operation: the statement may run twice. */
export const recordOnce = (sql: SqlClient.SqlClient, operation: string, act: AuditAct) =>
  Effect.flatMap(
    CurrentActor,
    (actor) => sql`
      INSERT INTO audit_entries (operation, events) VALUES (${operation}, ${entryOf(actor, [act])}::json)
      ON CONFLICT (account_id, operation) WHERE operation IS NOT NULL DO NOTHING`
  )
