import { Effect } from "effect"
import { SqlClient } from "effect/sql"

/** When a key was registered is unknown for the rows that exist. The default serves 1.0.0, which inserts no time. */
export default Effect.gen(function* () {
  const sql = yield* SqlClient.SqlClient
  yield* sql`ALTER TABLE keks ADD COLUMN registered_at timestamptz(3)`
  yield* sql`ALTER TABLE keks ALTER COLUMN registered_at SET DEFAULT now()`
})
