import { Effect, Layer, Option } from "effect"
import type { LastUse } from "../domain/routing/LastUse.ts"
import { CredentialUse, type UsedCredential } from "../port/CredentialUse.ts"
import { Database } from "./connection/Database.ts"
import { inLockOrder } from "./rowOrder.ts"

const timeOf = (at: number | null) => (at === null ? null : new Date(at).toISOString())

/** Uses as `json_populate_recordset` reads them. */
const toJson = (uses: ReadonlyArray<UsedCredential>) =>
  JSON.stringify(
    uses.map((use) => ({
      ...use,
      last_leased_at: timeOf(use.last_leased_at),
      last_succeeded_at: timeOf(use.last_succeeded_at),
      last_failed_at: timeOf(use.last_failed_at)
    }))
  )

export const layer = Layer.effect(
  CredentialUse,
  Effect.map(Database, ({ background, reads }) => ({
    store: (uses) => {
      const { ask, sql } = background
      return Effect.asVoid(
        ask(
          sql`
          INSERT INTO credential_use AS used
            (account_id, credential_id, last_leased_at, last_succeeded_at, last_failed_at, last_failure)
          SELECT given.account_id, given.credential_id, given.last_leased_at, given.last_succeeded_at,
            given.last_failed_at, given.last_failure
          FROM json_populate_recordset(NULL::credential_use, ${toJson(inLockOrder(({ account_id, credential_id }) => `${account_id} ${credential_id}`, uses))}::json) AS given
          JOIN credentials ON credentials.account_id = given.account_id AND credentials.id = given.credential_id
          ON CONFLICT (account_id, credential_id) DO UPDATE
          SET last_leased_at = greatest(used.last_leased_at, excluded.last_leased_at),
            last_succeeded_at = greatest(used.last_succeeded_at, excluded.last_succeeded_at),
            last_failed_at = greatest(used.last_failed_at, excluded.last_failed_at),
            last_failure = CASE WHEN used.last_failed_at >= excluded.last_failed_at OR excluded.last_failed_at IS NULL
              THEN used.last_failure ELSE excluded.last_failure END`,
          "credential_use.store"
        )
      )
    },
    find: (account_id, credential_id) => {
      const { ask, sql } = reads
      const rows = sql<LastUse>`
        SELECT (extract(epoch FROM last_leased_at) * 1000)::float8 AS last_leased_at,
          (extract(epoch FROM last_succeeded_at) * 1000)::float8 AS last_succeeded_at,
          (extract(epoch FROM last_failed_at) * 1000)::float8 AS last_failed_at, last_failure
        FROM credential_use WHERE account_id = ${account_id} AND credential_id = ${credential_id}`
      return Effect.map(ask(rows, "credential_use.find"), ([row]) => Option.fromUndefinedOr(row))
    }
  }))
)
