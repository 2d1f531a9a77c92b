import { Effect } from "effect"
import { SqlClient, type SqlError } from "effect/sql"

/** Migrations that run in one transaction. */
export interface Stage {
  readonly migrations: Readonly<Record<string, Effect.Effect<void, SqlError.SqlError, SqlClient.SqlClient>>>
  /** Long work that blocks no statement. Runs before the transaction, and again if it was interrupted. */
  readonly prepare?: (sql: SqlClient.SqlClient) => Effect.Effect<void, SqlError.SqlError>
  /** Drops what only the version before needs: run on a new database, else on request. The next version runs it anyway. */
  readonly finishes?: true
}

/** A migration that runs the statements in order. */
export const running = (statements: ReadonlyArray<string>) =>
  Effect.flatMap(SqlClient.SqlClient, (sql) =>
    Effect.forEach(statements, (statement) => sql.unsafe(statement), { discard: true })
  )

interface Index {
  readonly name: string
  readonly unique?: true
  /** The table and its columns. */
  readonly on: string
}

/**
 * Builds indexes outside a transaction, while the tables are read and written. Indexes that an earlier attempt built
 * stay; one that an interrupted attempt left is invalid and is built again.
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
