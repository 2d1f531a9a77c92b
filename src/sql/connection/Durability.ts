import { Effect } from "effect"
import { Reactivity } from "effect/reactivity"
import type { SqlClient } from "effect/sql"
import { DatabaseFailure } from "../../port/DatabaseFailure.ts"
import { type DatabaseSettings, makeClient } from "./Database.ts"
import type { DatabaseTarget } from "./DatabaseTarget.ts"
import { failureOf } from "./DatabaseErrors.ts"

/** Whether sessions acknowledge a commit before it is on disk, as only `synchronous_commit = off` does. */
export const acknowledgesEarly = (sql: SqlClient.SqlClient) =>
  Effect.map(
    sql<{ value: string }>`SELECT current_setting('synchronous_commit') AS value`,
    ([session]) => session?.value === "off"
  )

/** Whether the session cannot write: it is on a standby, or its role or database says so. */
export const isReadOnly = (sql: SqlClient.SqlClient) =>
  Effect.map(
    sql<{ read_only: boolean }>`SELECT current_setting('transaction_read_only') = 'on' AS read_only`,
    ([session]) => session?.read_only === true
  )

const readOnly = new DatabaseFailure({ kind: "ReadOnly", sqlstate: "25006", constraint: undefined })

/** Whether server, database and role let sessions acknowledge early by default; a failure if they cannot write. */
export const acknowledgesEarlyByDefault = (
  target: DatabaseTarget,
  settings: Pick<DatabaseSettings, "connectTimeout" | "pooler">
) =>
  Effect.scoped(
    Effect.gen(function* () {
      const sql = yield* makeClient(target, { ...settings, poolSize: 1 })
      const session = yield* Effect.all({ early: acknowledgesEarly(sql), cannotWrite: isReadOnly(sql) })
      return session.cannotWrite ? yield* readOnly : session.early
    })
  ).pipe(
    Effect.provide(Reactivity.layer),
    Effect.mapError((error) => (error._tag === "SqlError" ? failureOf(error) : error))
  )

/** Set on the service's own sessions where the default is off; a stronger setting is left alone. */
export const durableSession = { synchronous_commit: "on" }
