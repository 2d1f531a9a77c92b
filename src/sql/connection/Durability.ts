import { Effect } from "effect"
import type { SqlClient } from "effect/sql"

/** Whether a session cannot write, and whether it acknowledges early, as with `synchronous_commit = off`. */
export const sessionState = (sql: SqlClient.SqlClient) =>
  Effect.map(
    sql<{ readOnly: boolean; early: boolean }>`
      SELECT current_setting('transaction_read_only') = 'on' AS "readOnly",
        current_setting('synchronous_commit') = 'off' AS early`,
    ([session = { readOnly: false, early: false }]) => session
  )

/** Set on the service's own sessions where the default is off; a stronger setting is left alone. */
export const durableSession = { synchronous_commit: "on" }
