import { Effect } from "effect"
import type { SqlClient } from "effect/sql"

/** Whether the session cannot write: it is on a standby, or its role or database says so. */
export const isReadOnly = (sql: SqlClient.SqlClient) =>
  Effect.map(
    sql<{ read_only: boolean }>`SELECT current_setting('transaction_read_only') = 'on' AS read_only`,
    ([session]) => session?.read_only === true
  )
