import { readdirSync, readFileSync } from "node:fs"
import { join } from "node:path"
import { Effect } from "effect"
import * as EmbeddedPostgres from "../../src/sql/embedded/EmbeddedPostgres.ts"
import { urlOf } from "../support/database/embedded.ts"
import { adminClient } from "../support/database/freshDatabase.ts"
import type { Channel } from "./Channel.ts"

const settings = [
  "ALTER SYSTEM SET logging_collector = on",
  "ALTER SYSTEM SET log_statement = 'all'",
  "ALTER ROLE byok SET log_min_messages = 'debug2'",
  "ALTER ROLE byok SET log_min_error_statement = 'debug2'",
  "ALTER ROLE byok SET log_error_verbosity = 'verbose'",
  "ALTER ROLE byok SET log_parameter_max_length_on_error = -1"
]

const start = Effect.fnUntraced(function* (directory: string) {
  const url = urlOf(yield* EmbeddedPostgres.start(directory))
  return { url, sql: yield* adminClient(url) }
})

/** The embedded database of a data directory, which logs statements, parameters and failures. */
export const startTalkative = Effect.fnUntraced(function* (directory: string) {
  yield* Effect.scoped(
    Effect.flatMap(start(directory), ({ sql }) => Effect.forEach(settings, (statement) => sql.unsafe(statement)))
  )
  return yield* start(directory)
})

const channelOf = (directory: string): Channel =>
  directory.includes("/pg_wal") ? "write-ahead log" : directory.endsWith("/log") ? "log of PostgreSQL" : "data files"

/** Every file of PostgreSQL in a data directory. */
export const filesOf = function* (directory: string): Generator<readonly [Channel, Uint8Array]> {
  for (const entry of readdirSync(join(directory, "postgres"), { recursive: true, withFileTypes: true })) {
    // PostgreSQL removes this cache of its catalog whenever a table changes.
    if (entry.isFile() && entry.name !== "pg_internal.init")
      yield [channelOf(entry.parentPath), readFileSync(join(entry.parentPath, entry.name))]
  }
}
