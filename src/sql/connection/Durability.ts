import { Effect } from "effect"
import { Reactivity } from "effect/reactivity"
import type { SqlClient } from "effect/sql"
import { DatabaseFailure } from "../../port/DatabaseFailure.ts"
import { type DatabaseSettings, makeClient } from "./Database.ts"
import type { DatabaseTarget } from "./DatabaseTarget.ts"
import { failureOf } from "./DatabaseErrors.ts"
import { missingRights, type Rights } from "../rights.ts"

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

/** The tables that Citus keeps for `byok migrate --distribute`; the last one says that it has finished. */
export const distributedTables = [
  "accounts",
  "workspaces",
  "credentials",
  "receipts",
  "credential_parkings",
  "credential_use",
  "audit_entries"
] as const

/** How far the rows of tenants are spread over the nodes of a Citus cluster. */
const distributionOf = (sql: SqlClient.SqlClient) =>
  Effect.gen(function* () {
    const citus = yield* sql`SELECT 1 FROM pg_class WHERE oid = to_regclass('pg_catalog.pg_dist_partition')`
    if (citus.length === 0) return "none" as const
    const { length } = yield* sql`
      SELECT 1 FROM pg_catalog.pg_dist_partition
      WHERE logicalrelid IN (SELECT to_regclass(name) FROM unnest(${distributedTables}::text[]) AS name)`
    return length === 0 ? "none" : length < distributedTables.length ? "unfinished" : "distributed"
  })

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
      const { early, readOnly } = yield* sessionState(sql)
      if (readOnly) return yield* new DatabaseFailure({ kind: "ReadOnly", sqlstate: "25006", constraint: undefined })
      return { early, missing: yield* missingRights(sql, rights), distribution: yield* distributionOf(sql) }
    })
  ).pipe(
    Effect.provide(Reactivity.layer),
    Effect.mapError((error) => (error._tag === "SqlError" ? failureOf(error) : error))
  )

/** Set on the service's own sessions where the default is off; a stronger setting is left alone. */
export const durableSession = { synchronous_commit: "on" }
