import { Effect } from "effect"
import { SqlClient } from "effect/sql"

/**
 * Counts the successes that ended pauses, so that a late refusal from before such a success changes nothing. Rows of
 * instances that do not know epochs belong to the first one. A success has no `until`, so those instances pass over it.
 */
const statement = "ALTER TABLE credential_parkings ADD COLUMN epoch integer NOT NULL DEFAULT 0 CHECK (epoch >= 0)"

export default Effect.flatMap(SqlClient.SqlClient, (sql) => Effect.asVoid(sql.unsafe(statement)))
