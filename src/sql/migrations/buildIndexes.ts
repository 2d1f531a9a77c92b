import { Effect } from "effect"
import type { SqlClient } from "effect/sql"

interface Index {
  readonly name: string
  readonly unique?: true
  /** The table and its columns. */
  readonly on: string
}

/**
 * Builds indexes while others read and write the tables, outside a transaction. Those that an earlier attempt has built
 * stay; what an interrupted one left is invalid, and built again.
 */
export const buildIndexes = (indexes: ReadonlyArray<Index>) => (sql: SqlClient.SqlClient) =>
  Effect.forEach(
    indexes,
    Effect.fnUntraced(function* ({ name, on, unique }) {
      const invalid = yield* sql`
        SELECT 1 FROM pg_index WHERE indexrelid = to_regclass(${name}) AND NOT indisvalid`
      if (invalid.length > 0) yield* sql.unsafe(`DROP INDEX CONCURRENTLY ${name}`)
      yield* sql.unsafe(`CREATE ${unique === true ? "UNIQUE " : ""}INDEX CONCURRENTLY IF NOT EXISTS ${name} ON ${on}`)
    }),
    { discard: true }
  )
