import { Effect } from "effect"
import { SqlClient } from "effect/sql"

/** No credential may name a retired key: retiring one also adds a constraint to `credentials`. */
export default Effect.gen(function* () {
  const sql = yield* SqlClient.SqlClient
  yield* sql`ALTER TABLE keks ADD COLUMN retired_at timestamptz(3)`
})
