import { Effect } from "effect"
import type { SqlClient } from "effect/sql"
import { DatabaseFailure } from "../../port/DatabaseFailure.ts"
import { type ClientSettings, makeClient } from "../connection/Database.ts"
import { failureOf } from "../connection/DatabaseErrors.ts"
import type { DatabaseTarget } from "../connection/DatabaseTarget.ts"
import { distributionOf } from "./distribute.ts"

/** Whether a session is read-only, and whether it acknowledges commits early: `synchronous_commit = off`. */
export const sessionState = (sql: SqlClient.SqlClient) =>
  Effect.map(
    sql<{ readOnly: boolean; acknowledgesEarly: boolean }>`
      SELECT current_setting('transaction_read_only') = 'on' AS "readOnly",
        current_setting('synchronous_commit') = 'off' AS "acknowledgesEarly"`,
    ([session = { readOnly: false, acknowledgesEarly: false }]) => session
  )

/** Settings for the service's sessions if the database acknowledges commits early by default. */
export const durableSession = { synchronous_commit: "on" }

/** The kinds of statement that a role must be allowed to run, by table. */
export type Rights = Readonly<Record<string, ReadonlyArray<"SELECT" | "INSERT" | "UPDATE" | "DELETE">>>

/** The rights that `serve` and every command that opens the stores need. */
export const servingRights: Rights = {
  effect_sql_migrations: ["SELECT"],
  accounts: ["SELECT", "INSERT"],
  audit_entries: ["SELECT", "INSERT"],
  audit_checkpoints: ["SELECT", "INSERT"],
  workspaces: ["SELECT", "INSERT", "UPDATE"],
  api_keys: ["SELECT", "INSERT", "UPDATE"],
  keks: ["SELECT", "INSERT", "UPDATE"],
  pools: ["SELECT", "INSERT", "UPDATE"],
  credential_use: ["SELECT", "INSERT", "UPDATE"],
  event_cursors: ["SELECT", "INSERT", "UPDATE"],
  keyring_instances: ["SELECT", "INSERT", "UPDATE", "DELETE"],
  links: ["SELECT", "INSERT", "UPDATE", "DELETE"],
  credentials: ["SELECT", "INSERT", "UPDATE", "DELETE"],
  credential_parkings: ["SELECT", "INSERT", "UPDATE", "DELETE"],
  idempotency_records: ["SELECT", "INSERT", "UPDATE", "DELETE"]
}

/** The rights that deleting an account needs; UPDATE on accounts is for the lock on the account. */
export const erasingRights: Rights = {
  ...servingRights,
  accounts: ["SELECT", "INSERT", "UPDATE", "DELETE"],
  workspaces: ["SELECT", "INSERT", "UPDATE", "DELETE"],
  pools: ["SELECT", "INSERT", "UPDATE", "DELETE"],
  api_keys: ["SELECT", "INSERT", "UPDATE", "DELETE"]
}

/** The rights that the session's user lacks on existing tables. A right on one column counts for the table. */
export const missingRights = (sql: SqlClient.SqlClient, rights: Rights) => {
  const needed = Object.entries(rights).flatMap(([name, kinds]) => kinds.map((kind) => ({ name, kind })))
  return sql<{ name: string; kinds: string }>`
    SELECT name, string_agg(kind, ', ' ORDER BY n) AS kinds
    FROM unnest(${needed.map(({ name }) => name)}::text[], ${needed.map(({ kind }) => kind)}::text[])
      WITH ORDINALITY AS needed (name, kind, n)
    WHERE NOT CASE kind WHEN 'DELETE' THEN has_table_privilege(to_regclass(name), kind)
      ELSE has_any_column_privilege(to_regclass(name), kind) END
    GROUP BY name ORDER BY min(n)`
}

/**
 * Inspects a session with the database's default settings: early acknowledgement, missing rights and distribution.
 * Fails if the session is read-only.
 */
export const inspectSession = (target: DatabaseTarget, settings: ClientSettings, rights: Rights) =>
  Effect.scoped(
    Effect.gen(function* () {
      const sql = yield* makeClient(target, settings)
      const { acknowledgesEarly, readOnly } = yield* sessionState(sql)
      if (readOnly) return yield* new DatabaseFailure({ kind: "ReadOnly", sqlstate: "25006", constraint: undefined })
      return { acknowledgesEarly, missing: yield* missingRights(sql, rights), distribution: yield* distributionOf(sql) }
    })
  ).pipe(Effect.mapError((error) => (error._tag === "SqlError" ? failureOf(error) : error)))
