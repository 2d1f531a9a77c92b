import { DateTime, Effect, Layer, Option, Schema } from "effect"
import { SqlSchema } from "effect/sql"
import { ApiKeyHash } from "../domain/ApiKeyHash.ts"
import { WorkspaceId } from "../domain/WorkspaceId.ts"
import type { AccountId } from "../domain/AccountId.ts"
import { AccountRepository, type ApiKeyRecord, type Workspace } from "../service/AccountRepository.ts"
import { Database } from "./Database.ts"

const Time = Schema.DateTimeUtcFromDate
const WorkspaceRow = Schema.Struct({
  workspace_id: WorkspaceId,
  name: Schema.String,
  is_default: Schema.Boolean,
  created_at: Time,
  deleted_at: Schema.NullOr(Time)
})
const ApiKeyRow = Schema.Struct({
  hash: ApiKeyHash,
  name: Schema.String,
  management: Schema.Boolean,
  created_at: Time,
  revoked_at: Schema.NullOr(Time)
})

export const layer = Layer.effect(
  AccountRepository,
  Effect.gen(function* () {
    const { reads, writes } = yield* Database
    const { sql } = writes
    const bytes = (hash: ApiKeyHash) => Buffer.from(hash, "hex")

    const insertWorkspace = (
      account_id: AccountId,
      { created_at, name, workspace_id }: Omit<Workspace, "is_default" | "deleted_at">,
      is_default: boolean
    ) => sql`
      INSERT INTO workspaces (id, account_id, name, is_default, created_at)
      SELECT ${workspace_id}::uuid, id, ${name}, ${is_default}, ${DateTime.toDate(created_at)}::timestamptz
      FROM accounts WHERE id = ${account_id}
      ON CONFLICT (id) DO UPDATE SET id = excluded.id RETURNING id`

    const insertApiKey = (
      account_id: AccountId,
      { created_at, hash, management, name }: Omit<ApiKeyRecord, "revoked_at">
    ) => sql`
      INSERT INTO api_keys (hash, account_id, name, management, created_at)
      SELECT ${bytes(hash)}::bytea, id, ${name}, ${management}, ${DateTime.toDate(created_at)}::timestamptz
      FROM accounts WHERE id = ${account_id}
      ON CONFLICT (hash) DO UPDATE SET hash = excluded.hash RETURNING hash`

    const deleteWorkspace = SqlSchema.findOneOption({
      Request: Schema.Struct({ workspace_id: WorkspaceId, at: Time }),
      Result: Schema.Struct({ at: Time }),
      execute: ({ at, workspace_id }) => sql`
        UPDATE workspaces SET deleted_at = coalesce(deleted_at, ${at}) WHERE id = ${workspace_id} RETURNING deleted_at AS at`
    })
    const revokeApiKey = SqlSchema.findOneOption({
      Request: Schema.Struct({ hash: ApiKeyHash, at: Time }),
      Result: Schema.Struct({ at: Time }),
      execute: ({ at, hash }) => sql`
        UPDATE api_keys SET revoked_at = coalesce(revoked_at, ${at}) WHERE hash = ${bytes(ApiKeyHash.make(hash))} RETURNING revoked_at AS at`
    })
    const listWorkspaces = SqlSchema.findAll({
      Request: Schema.String,
      Result: WorkspaceRow,
      execute: (account_id) => reads.sql`
        SELECT id AS workspace_id, name, is_default, created_at, deleted_at FROM workspaces
        WHERE account_id = ${account_id} ORDER BY created_at, id`
    })
    const listApiKeys = SqlSchema.findAll({
      Request: Schema.String,
      Result: ApiKeyRow,
      execute: (account_id) => reads.sql`
        SELECT encode(hash, 'hex') AS hash, name, management, created_at, revoked_at FROM api_keys
        WHERE account_id = ${account_id} ORDER BY created_at, hash`
    })
    const at = Option.map(({ at }: { readonly at: DateTime.Utc }) => at)

    return {
      hasAccounts: Effect.map(reads.ask(reads.sql`SELECT 1 FROM accounts LIMIT 1`), (rows) => rows.length > 0),
      createAccount: ({ account_id, name }, workspace, key) =>
        Effect.gen(function* () {
          yield* sql`
            INSERT INTO accounts (id, name, created_at)
            VALUES (${account_id}, ${name}, ${DateTime.toDate(workspace.created_at)}) ON CONFLICT (id) DO NOTHING`
          yield* insertWorkspace(account_id, workspace, true)
          yield* insertApiKey(account_id, key)
        }).pipe(sql.withTransaction, writes.ask),
      createWorkspace: (account_id, workspace) =>
        Effect.map(writes.ask(insertWorkspace(account_id, workspace, false)), (rows) => rows.length > 0),
      deleteWorkspace: (workspace_id, when) => Effect.map(writes.ask(deleteWorkspace({ workspace_id, at: when })), at),
      listWorkspaces: (account_id) => reads.ask(listWorkspaces(account_id)),
      addApiKey: (account_id, key) => Effect.map(writes.ask(insertApiKey(account_id, key)), (rows) => rows.length > 0),
      revokeApiKey: (hash, when) => Effect.map(writes.ask(revokeApiKey({ hash, at: when })), at),
      listApiKeys: (account_id) => reads.ask(listApiKeys(account_id))
    }
  })
)
