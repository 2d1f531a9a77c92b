import { Effect } from "effect"
import { SqlClient } from "effect/sql"

/** Drops the unique indexes that 0005 kept for instances of 1.0.0: partitioning by account rules them out. */
export default Effect.gen(function* () {
  const sql = yield* SqlClient.SqlClient
  yield* sql`DROP INDEX IF EXISTS credentials_id, workspaces_id_unique`
})
