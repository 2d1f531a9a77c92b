import { Effect, Layer, Schema } from "effect"
import { SqlSchema } from "effect/sql"
import { AccountId } from "../domain/AccountId.ts"
import { CredentialId } from "../domain/CredentialId.ts"
import { WorkspaceId } from "../domain/WorkspaceId.ts"
import { KeyUse } from "../port/KeyUse.ts"
import { Database } from "./connection/Database.ts"

export const layer = Layer.effect(
  KeyUse,
  Effect.map(Database, ({ reads: { ask, sql } }) => {
    const list = SqlSchema.findAll({
      Request: Schema.Void,
      Result: Schema.Struct({
        kek_id: Schema.String,
        credentials: Schema.Int,
        wraps: Schema.Finite,
        retired: Schema.Boolean
      }),
      execute: () => sql`
        SELECT kek_id, coalesce(credentials, 0) AS credentials, coalesce(wraps, 0)::float8 AS wraps,
          retired_at IS NOT NULL AS retired
        FROM (SELECT kek_id, count(*)::int AS credentials FROM credentials GROUP BY kek_id) AS named
        FULL JOIN (SELECT id AS kek_id, wraps, retired_at FROM keks) AS known USING (kek_id)
        ORDER BY kek_id`
    })
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
    return { list: Effect.suspend(() => ask(list())), naming: (kek_ids, limit) => ask(naming({ kek_ids, limit })) }
  })
)
