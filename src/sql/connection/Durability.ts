import { Effect } from "effect"
import { Reactivity } from "effect/reactivity"
import type { SqlClient } from "effect/sql"
import { DatabaseFailure } from "../../port/DatabaseFailure.ts"
import { type DatabaseSettings, makeClient } from "./Database.ts"
import type { DatabaseTarget } from "./DatabaseTarget.ts"
import { failureOf } from "./DatabaseErrors.ts"
import { missingRights, type Rights } from "../rights.ts"

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

/**
 * Whether server, database and role let sessions acknowledge early by default, and which rights the role lacks; a failure
 * if sessions cannot write.
 */
export const inspectSession = (
  target: DatabaseTarget,
  settings: Pick<DatabaseSettings, "connectTimeout" | "pooler">,
  rights: Rights
) =>
  Effect.scoped(
    Effect.gen(function* () {
      const sql = yield* makeClient(target, { ...settings, poolSize: 1 })
      if (yield* isReadOnly(sql)) return yield* readOnly
      return yield* Effect.all({ early: acknowledgesEarly(sql), missing: missingRights(sql, rights) })
    })
  ).pipe(
    Effect.provide(Reactivity.layer),
    Effect.mapError((error) => (error._tag === "SqlError" ? failureOf(error) : error))
  )

/** Set on the service's own sessions where the default is off; a stronger setting is left alone. */
export const durableSession = { synchronous_commit: "on" }
