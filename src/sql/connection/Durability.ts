import { Effect } from "effect"
import type { SqlClient } from "effect/sql"

/**
 * Whether a session cannot write, as it is on a standby or its role or database says so; and whether it acknowledges a
 * commit before it is on disk, as only `synchronous_commit = off` does.
 */
export const sessionState = (sql: SqlClient.SqlClient) =>
  Effect.map(
    sql<{ readOnly: boolean; early: boolean }>`
      SELECT current_setting('transaction_read_only') = 'on' AS "readOnly",
        current_setting('synchronous_commit') = 'off' AS early`,
    ([session = { readOnly: false, early: false }]) => session
  )

/** Set on the service's own sessions where the default is off; a stronger setting is left alone. */
export const durableSession = { synchronous_commit: "on" }
