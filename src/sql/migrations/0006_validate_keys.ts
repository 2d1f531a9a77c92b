import { Effect } from "effect"
import type { SqlClient } from "effect/sql"

/** Validates the foreign keys of 0005 for older rows, each in a transaction of its own that blocks no reads or writes. */
export const prepare = (sql: SqlClient.SqlClient) =>
  Effect.gen(function* () {
    yield* sql`ALTER TABLE credentials VALIDATE CONSTRAINT credentials_workspace`
    yield* sql`ALTER TABLE receipts VALIDATE CONSTRAINT receipts_credential`
  })

export default Effect.void
