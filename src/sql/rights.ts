import type { SqlClient } from "effect/sql"

/** Rights on tables, by the table. */
export type Rights = Readonly<Record<string, ReadonlyArray<"SELECT" | "INSERT" | "UPDATE" | "DELETE">>>

/** What `serve` and every command need. */
export const servingRights: Rights = {
  effect_sql_migrations: ["SELECT"],
  accounts: ["SELECT", "INSERT"],
  audit_entries: ["SELECT", "INSERT"],
  audit_checkpoints: ["SELECT", "INSERT"],
  workspaces: ["SELECT", "INSERT", "UPDATE"],
  api_keys: ["SELECT", "INSERT", "UPDATE"],
  keks: ["SELECT", "INSERT", "UPDATE"],
  credential_use: ["SELECT", "INSERT", "UPDATE"],
  credentials: ["SELECT", "INSERT", "UPDATE", "DELETE"],
  credential_parkings: ["SELECT", "INSERT", "UPDATE", "DELETE"],
  receipts: ["SELECT", "INSERT", "UPDATE", "DELETE"]
}

/** What deleting an account needs. The lock on the account takes UPDATE. */
export const erasingRights: Rights = {
  ...servingRights,
  accounts: ["SELECT", "INSERT", "UPDATE", "DELETE"],
  workspaces: ["SELECT", "INSERT", "UPDATE", "DELETE"],
  api_keys: ["SELECT", "INSERT", "UPDATE", "DELETE"]
}

/** The rights that the session's user lacks on tables that exist. A right on one column counts as that on the table. */
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
