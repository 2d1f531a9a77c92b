import { Effect } from "effect"
import { Reactivity } from "effect/reactivity"
import type { SqlClient } from "effect/sql"
import { type DatabaseSettings, makeClient } from "./Database.ts"
import { failureOf } from "./DatabaseFailure.ts"
import type { DatabaseTarget } from "./DatabaseTarget.ts"

/** Whether sessions acknowledge a commit before it is on disk. What else `synchronous_commit` may say waits for that. */
export const acknowledgesEarly = (sql: SqlClient.SqlClient) =>
  Effect.map(
    sql<{ value: string }>`SELECT current_setting('synchronous_commit') AS value`,
    ([session]) => session?.value === "off"
  )

/** The same for sessions that say nothing about it, as server, database and role have it. */
export const acknowledgesEarlyByDefault = (
  target: DatabaseTarget,
  settings: Pick<DatabaseSettings, "connectTimeout" | "pooler">
) =>
  Effect.scoped(Effect.flatMap(makeClient(target, { ...settings, poolSize: 1 }), acknowledgesEarly)).pipe(
    Effect.provide(Reactivity.layer),
    Effect.mapError(failureOf)
  )

/** What the service's own sessions say about it where that is needed; a stronger setting is never touched. */
export const durableSession = { synchronous_commit: "on" }
