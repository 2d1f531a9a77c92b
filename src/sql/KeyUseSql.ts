import { Effect, Layer, Schema } from "effect"
import { SqlSchema } from "effect/sql"
import { AccountId } from "../domain/AccountId.ts"
import { CredentialId } from "../domain/CredentialId.ts"
import { countLimit } from "../domain/countLimit.ts"
import { WorkspaceId } from "../domain/WorkspaceId.ts"
import { KeyUse, type UsedKey } from "../port/KeyUse.ts"
import { Database } from "./connection/Database.ts"
import { countNaming, namedKeks } from "./namedKeks.ts"

export const layer = Layer.effect(
  KeyUse,
  Effect.map(Database, ({ reads: { ask, sql } }) => {
    const list = SqlSchema.findAll({
      Request: Schema.Void,
      Result: Schema.Struct({
        kek_id: Schema.String,
        credentials: Schema.Int,
        wraps: Schema.Finite,
        retired: Schema.Boolean,
        registered_at: Schema.NullOr(Schema.DateTimeUtcFromDate)
      }),
      execute: () => sql`
        WITH RECURSIVE ${namedKeks(sql)}
        SELECT coalesce(named.id, keks.id) AS kek_id,
          CASE WHEN named.id IS NULL THEN 0 ELSE ${countNaming(sql, countLimit + 1)} END AS credentials,
          coalesce(wraps, 0)::float8 AS wraps, retired_at IS NOT NULL AS retired, registered_at
        FROM (SELECT id FROM named WHERE id IS NOT NULL) AS named FULL JOIN keks USING (id)
        ORDER BY kek_id`
    })
    const capped = (credentials: number): Pick<UsedKey, "credentials" | "more_credentials"> =>
      credentials > countLimit ? { credentials: countLimit, more_credentials: true } : { credentials }
    const naming = SqlSchema.findAll({
      Request: Schema.Struct({ kek_ids: Schema.Array(Schema.String), limit: Schema.Int }),
      Result: Schema.Struct({
        kek_id: Schema.String,
        account_id: AccountId,
        workspace_id: WorkspaceId,
        credential_id: CredentialId
      }),
      execute: ({ kek_ids, limit }) => sql`
        SELECT kek_id, account_id, workspace_id, id AS credential_id FROM credentials
        WHERE kek_id = ANY(${kek_ids}::text[]) ORDER BY kek_id, id LIMIT ${limit}`
    })
    return {
      list: Effect.map(
        Effect.suspend(() => ask(list(), "keks.list")),
        (keys) =>
          keys.map(({ credentials, registered_at, ...key }) => ({
            ...key,
            ...capped(credentials),
            ...(registered_at === null ? {} : { registered_at })
          }))
      ),
      naming: (kek_ids, limit) => ask(naming({ kek_ids, limit }), "keks.naming")
    }
  })
)
