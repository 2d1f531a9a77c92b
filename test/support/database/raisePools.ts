import { Effect } from "effect"
import type { SqlClient } from "effect/sql"

/** Makes routers see what a test has changed in credentials and parkings by SQL: without it, they see that within a minute. */
export const raisePools = Effect.fnUntraced(function* (sql: SqlClient.SqlClient) {
  yield* sql`UPDATE pools SET version = version + 1, health = health + 1`
  yield* sql`
    INSERT INTO pools (account_id, workspace_id, provider, version, members)
    SELECT account_id, workspace_id, provider, 1, count(*) FROM credentials GROUP BY account_id, workspace_id, provider
    ON CONFLICT DO NOTHING`
})
