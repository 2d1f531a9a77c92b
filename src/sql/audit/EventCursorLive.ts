import { Effect, Layer } from "effect"
import { countLimit } from "../../port/AuditLog.ts"
import { type CursorState, EventCursor, type Progress } from "../../port/Events.ts"
import { askFirst, askRows, askExists } from "../connection/statements.ts"
import { Database } from "../connection/Database.ts"

/** How long a holder keeps the cursor after a step: longer than one delivery and its statements take. */
const leaseSeconds = 30

const maxRetryPauseSeconds = 300

/** `EventCursor` as one row. Its `done` counts the events already delivered of the entry after `seq`. */
export const layer = Layer.effect(
  EventCursor,
  Effect.map(Database, ({ background, reads }) => {
    const { sql } = reads
    /** Whether a time has passed, or is so far ahead that a clock wrote it that was put back since, by a second or more. */
    const isOver = (column: string, most: number) =>
      sql`(${sql(column)} IS NULL OR ${sql(column)} NOT BETWEEN now() AND now() + ${most + 1} * interval '1 second')`
    const hasPaused = (cursor: string) => isOver(`${cursor}.retry_at`, maxRetryPauseSeconds)
    const isFree = (cursor: string) => sql`
      (${sql(`${cursor}.holder`)} IS NULL OR ${isOver(`${cursor}.held_until`, leaseSeconds)}) AND ${hasPaused(cursor)}`
    return {
      state: askFirst(reads, "event_cursors.state")<CursorState>`
      SELECT seq::float8 AS after, done, failures,
        CASE WHEN ${hasPaused("event_cursors")} THEN 0 ELSE extract(epoch FROM retry_at - now()) END::float8 AS pause, waiting,
        greatest(0, coalesce(extract(epoch FROM now() - oldest), 0))::float8 AS lag,
        waiting > 0 AND ${isFree("event_cursors")} AS "isDue"
      FROM event_cursors, LATERAL (
        SELECT count(*)::int AS waiting, min(at) AS oldest FROM (
          SELECT at FROM audit_entries WHERE seq > event_cursors.seq ORDER BY seq LIMIT ${countLimit + 1}
        ) AS next
      ) AS counted`,
      take: (holder) => askFirst(background, "event_cursors.take")<Progress>`
      INSERT INTO event_cursors AS cursor (id, seq, holder, held_until)
      SELECT 1, coalesce(max(seq), 0), ${holder}::uuid, now() + ${leaseSeconds} * interval '1 second' FROM audit_entries
      ON CONFLICT (id) DO UPDATE SET holder = excluded.holder, held_until = excluded.held_until
      WHERE ${isFree("cursor")}
      RETURNING seq::float8 AS after, done`,
      advance: (holder, { after, done: deliveredOfNext }) => askExists(background, "event_cursors.advance")`
      UPDATE event_cursors SET seq = ${String(after)}::bigint, done = ${deliveredOfNext}, failures = 0, retry_at = NULL,
        held_until = now() + ${leaseSeconds} * interval '1 second'
      WHERE holder = ${holder} RETURNING 1`,
      free: (holder, hasFailed) =>
        Effect.asVoid(askRows(background, "event_cursors.free")`
        UPDATE event_cursors SET holder = NULL, failures = failures + ${hasFailed ? 1 : 0}, retry_at = CASE WHEN ${hasFailed}
          THEN now() + least(${maxRetryPauseSeconds}, power(2, least(failures, 20))) * interval '1 second' ELSE retry_at END
        WHERE holder = ${holder}`)
    }
  })
)
