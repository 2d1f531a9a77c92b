import { Effect } from "effect"
import { Reactivity } from "effect/reactivity"
import type { SqlClient } from "effect/sql"
import { type DatabaseSettings, makeClient } from "./Database.ts"
import { failureOf } from "./DatabaseFailure.ts"
import type { DatabaseTarget } from "./DatabaseTarget.ts"

/** Whether sessions acknowledge a commit before it is on disk, as only `synchronous_commit = off` does. */
export const acknowledgesEarly = (sql: SqlClient.SqlClient) =>
  Effect.map(
    sql<{ value: string }>`SELECT current_setting('synchronous_commit') AS value`,
    ([session]) => session?.value === "off"
  )

/** Whether sessions acknowledge early with the defaults of the server, database and role. */
export const acknowledgesEarlyByDefault = (
  target: DatabaseTarget,
  settings: Pick<DatabaseSettings, "connectTimeout" | "pooler">
) =>
  Effect.scoped(Effect.flatMap(makeClient(target, { ...settings, poolSize: 1 }), acknowledgesEarly)).pipe(
    Effect.provide(Reactivity.layer),
    Effect.mapError(failureOf)
  )

/** Set on the service's own sessions where the default is off; a stronger setting is left alone. */
export const durableSession = { synchronous_commit: "on" }
