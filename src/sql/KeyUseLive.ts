import { Effect, Layer, Schema } from "effect"
import { SqlSchema } from "effect/sql"
import { countLimit } from "../domain/countLimit.ts"
import { AccountId, CredentialId, WorkspaceId } from "../domain/Identifiers.ts"
import { KeyUse, type RegisteredKey, type UsedKey } from "../port/KeyUse.ts"
import { Database } from "./connection/Database.ts"
import { countNaming, namedKeks } from "./namedKeks.ts"

export const layer = Layer.effect(
  KeyUse,
  Effect.map(Database, ({ reads: { ask, sql } }) => {
    const Registered = Schema.Struct({
      kek_id: Schema.String,
      wraps: Schema.Finite,
      registered_at: Schema.NullOr(Schema.DateTimeUtcFromDate)
    })
    const list = SqlSchema.findAll({
      Request: Schema.Void,
      Result: Schema.Struct({ ...Registered.fields, credentials: Schema.Int, retired: Schema.Boolean }),
      execute: () => sql`
        WITH RECURSIVE ${namedKeks(sql)}
        SELECT coalesce(named.id, keks.id) AS kek_id,
          CASE WHEN named.id IS NULL THEN 0 ELSE ${countNaming(sql, countLimit + 1)} END AS credentials,
          coalesce(wraps, 0)::float8 AS wraps, retired_at IS NOT NULL AS retired, registered_at
        FROM (SELECT id FROM named WHERE id IS NOT NULL) AS named FULL JOIN keks USING (id)
        ORDER BY kek_id`
    })
    const live = SqlSchema.findAll({
      Request: Schema.Void,
      Result: Registered,
      execute: () => sql`
        SELECT id AS kek_id, wraps::float8 AS wraps, registered_at FROM keks WHERE retired_at IS NULL`
    })
    const registered = ({ kek_id, registered_at, wraps }: typeof Registered.Type): RegisteredKey => ({
      kek_id,
      wraps,
      ...(registered_at === null ? {} : { registered_at })
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
          keys.map(({ credentials, retired, ...key }) => ({ ...registered(key), ...capped(credentials), retired }))
      ),
      live: Effect.map(
        Effect.suspend(() => ask(live(), "keks.live")),
        (keys) => keys.map(registered)
      ),
      naming: (kek_ids, limit) => ask(naming({ kek_ids, limit }), "keks.naming")
    }
  })
)
