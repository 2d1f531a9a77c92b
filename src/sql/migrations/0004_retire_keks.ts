import { Effect } from "effect"
import { SqlClient } from "effect/sql"

/** A retired key seals no more: a constraint on the credentials, made when a key is retired, sees to that. */
export default Effect.gen(function* () {
  const sql = yield* SqlClient.SqlClient
  yield* sql`ALTER TABLE keks ADD COLUMN retired_at timestamptz(3)`
})
