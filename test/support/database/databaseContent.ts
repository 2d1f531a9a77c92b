import { Effect } from "effect"
import type { SqlClient, SqlError } from "effect/sql"

/** Every value of every table as text; bytes are hexadecimal there. */
export const databaseContent = (sql: SqlClient.SqlClient): Effect.Effect<string, SqlError.SqlError> =>
  Effect.gen(function* () {
    const tables = yield* sql<{ name: string }>`
      SELECT format('%I.%I', table_schema, table_name) AS name FROM information_schema.tables
      WHERE table_schema NOT IN ('pg_catalog', 'information_schema')`
    const contents = yield* Effect.forEach(tables, ({ name }) =>
      sql.unsafe<{ line: string }>(`SELECT row_to_json(t)::text AS line FROM ${name} AS t`)
    )
    return contents.flatMap((rows) => rows.map(({ line }) => line)).join("\n")
  })
