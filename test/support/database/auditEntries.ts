import { Effect, Schema } from "effect"
import type { SqlClient } from "effect/sql"
import { AuditEvent } from "../../../src/domain/AuditEvent.ts"

const decode = Schema.decodeUnknownEffect(Schema.fromJsonString(Schema.Array(AuditEvent)), {
  onExcessProperty: "error"
})

/** The events of every entry, an array for each. An event that holds more than it may is a failure. */
export const entriesIn = (sql: SqlClient.SqlClient) =>
  Effect.flatMap(sql<{ events: string }>`SELECT events::text AS events FROM audit_entries ORDER BY seq`, (rows) =>
    Effect.forEach(rows, ({ events }) => decode(events))
  )

export const eventsIn = (sql: SqlClient.SqlClient) => Effect.map(entriesIn(sql), (entries) => entries.flat())
