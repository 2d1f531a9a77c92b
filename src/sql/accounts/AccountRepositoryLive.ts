import { Array as Arr, DateTime, Effect, Layer, Option } from "effect"
import type { Statement } from "effect/sql"
import type { AuditAct } from "../../domain/AuditEvent.ts"
import type { AccountId, ApiKeyHash, WorkspaceId } from "../../domain/Identifiers.ts"
import {
  type Account,
  AccountRepository,
  type ApiKeyRecord,
  type NewApiKey,
  type NewWorkspace,
  type Workspace,
  type WorkspaceDeletion,
  WorkspaceResolver
} from "../../port/AccountRepository.ts"
import { record, recordEach } from "../audit/auditing.ts"
import { askExists, askRows, type Dated, fromDated, makeLookUp } from "../connection/statements.ts"
import { Database } from "../connection/Database.ts"
import { lockDistributedAccount } from "../rows/lockDistributedAccount.ts"
import { eraseAccount } from "./eraseAccount.ts"

/** When an API key of an account was revoked. */
interface Ended {
  readonly account_id: AccountId
  readonly at: Date
}

export const layer = Layer.effect(
  AccountRepository,
  Effect.gen(function* () {
    const { reads, writes } = yield* Database
    const { sql } = writes
    const bytes = (hash: ApiKeyHash) => Buffer.from(hash, "hex")

    /**
     * Runs an INSERT that returns the new row or, with DO UPDATE, the existing one, whose `xmax` is not 0. Returns
     * whether it returned a row, and the acts to record: `act` if the row is new.
     */
    const insertOnce = (insert: Statement.Statement<{ readonly is_new: boolean }>, act: AuditAct) =>
      Effect.map(insert, (rows) => ({
        hasRow: rows.length > 0,
        acts: rows.filter(({ is_new }) => is_new).map(() => act)
      }))
    /** Inserts a row and records the act in one transaction. Returns false for an unknown account. */
    const insertAndRecord = (insert: ReturnType<typeof insertOnce>) =>
      sql.withTransaction(Effect.flatMap(insert, ({ acts, hasRow }) => Effect.as(record(sql, acts), hasRow)))

    const selectOwner = (workspace_id: WorkspaceId) =>
      sql<{ readonly account_id: AccountId }>`SELECT account_id FROM workspaces WHERE id = ${workspace_id}`

    const insertWorkspace = (
      account_id: AccountId,
      { created_at, name, workspace_id }: NewWorkspace,
      is_default: boolean
    ) =>
      insertOnce(
        sql`
          INSERT INTO workspaces (id, account_id, name, is_default, created_at)
          SELECT ${workspace_id}::uuid, id, ${name}, ${is_default}, ${DateTime.toDate(created_at)}::timestamptz
          FROM accounts WHERE id = ${account_id}
          ON CONFLICT (account_id, id) DO UPDATE SET id = excluded.id RETURNING xmax = 0 AS is_new`,
        { action: "workspace.create", account_id, workspace_id }
      )

    const insertApiKey = (account_id: AccountId, { created_at, hash, name, role }: NewApiKey) =>
      insertOnce(
        sql`
          INSERT INTO api_keys (hash, account_id, name, role, created_at)
          SELECT ${bytes(hash)}::bytea, id, ${name}, ${role}, ${DateTime.toDate(created_at)}::timestamptz
          FROM accounts WHERE id = ${account_id}
          ON CONFLICT (hash) DO UPDATE SET hash = excluded.hash RETURNING xmax = 0 AS is_new`,
        { action: "api_key.issue", account_id, api_key_hash: hash, role }
      ).pipe((insert) => Effect.andThen(lockDistributedAccount(writes, account_id, "shared"), insert))

    /** Adds a key. An existing row with equal columns counts as added, because a retried insert meets its own row. */
    const addApiKey = Effect.fnUntraced(function* (account_id: AccountId, key: NewApiKey) {
      const { created_at, hash, name, role } = key
      if (!(yield* insertAndRecord(insertApiKey(account_id, key)))) return "no account"
      const same = yield* sql`
        SELECT 1 FROM api_keys WHERE hash = ${bytes(hash)} AND account_id = ${account_id} AND name = ${name}
        AND role = ${role} AND created_at = ${DateTime.toDate(created_at)}`
      return same.length > 0 ? "added" : "hash taken"
    })

    /** Locks the workspace, which each create in it shares, before it counts credentials. */
    const deleteWorkspace = Effect.fnUntraced(function* (
      workspace_id: WorkspaceId,
      when: DateTime.Utc,
      keepIfInUse: boolean,
      within: AccountId | undefined
    ) {
      const [owner] = yield* selectOwner(workspace_id)
      if (owner === undefined || owner.account_id !== (within ?? owner.account_id)) {
        return Option.none<WorkspaceDeletion>()
      }
      const { account_id } = owner
      const isWorkspace = sql`account_id = ${account_id} AND id = ${workspace_id}`
      const [workspace] = yield* sql<{ is_default: boolean; deleted_at: Date | null }>`
        SELECT is_default, deleted_at FROM workspaces WHERE ${isWorkspace} FOR UPDATE`
      if (workspace === undefined) return Option.none<WorkspaceDeletion>()
      const [count] = yield* sql<{ credentials: number }>`
        SELECT count(*)::int AS credentials FROM credentials
        WHERE account_id = ${account_id} AND workspace_id = ${workspace_id}`
      const credentials = count?.credentials ?? 0
      const { deleted_at, is_default } = workspace
      if (deleted_at !== null) return Option.some({ credentials, deleted_at: DateTime.fromDateUnsafe(deleted_at) })
      if (keepIfInUse && is_default && credentials > 0) return Option.some({ credentials, deleted_at: null })
      yield* sql`UPDATE workspaces SET deleted_at = ${DateTime.toDate(when)} WHERE ${isWorkspace}`
      yield* record(sql, [{ action: "workspace.delete", account_id, workspace_id }])
      return Option.some({ credentials, deleted_at: when })
    }, sql.withTransaction)

    /** Unsets the old default first, because an account has at most one at a time. */
    const makeDefault = Effect.fnUntraced(function* (account_id: AccountId, workspace_id: WorkspaceId) {
      const rows = yield* sql`
        SELECT 1 FROM workspaces
        WHERE account_id = ${account_id} AND id = ${workspace_id} AND deleted_at IS NULL FOR UPDATE`
      if (rows.length === 0) return false
      yield* sql`
        UPDATE workspaces SET is_default = false
        WHERE account_id = ${account_id} AND is_default AND id <> ${workspace_id}`
      const changed = yield* sql`
        UPDATE workspaces SET is_default = true
        WHERE account_id = ${account_id} AND id = ${workspace_id} AND NOT is_default RETURNING id`
      yield* recordEach(sql, changed, () => ({ action: "workspace.default", account_id, workspace_id }))
      return true
    }, sql.withTransaction)

    const revokeApiKey = Effect.fnUntraced(function* (
      api_key_hash: ApiKeyHash,
      when: DateTime.Utc,
      within: AccountId | undefined
    ) {
      const isKey = sql`hash = ${bytes(api_key_hash)} AND account_id = coalesce(${within ?? null}::uuid, account_id)`
      const revoked = yield* sql<Ended>`
        UPDATE api_keys SET revoked_at = ${DateTime.toDate(when)}
        WHERE ${isKey} AND revoked_at IS NULL RETURNING account_id, revoked_at AS at`
      yield* recordEach(sql, revoked, ({ account_id }) => ({ action: "api_key.revoke", account_id, api_key_hash }))
      const [row] =
        revoked.length > 0
          ? revoked
          : yield* sql<Ended>`SELECT account_id, revoked_at AS at FROM api_keys WHERE ${isKey}`
      return Option.map(Option.fromUndefinedOr(row), ({ at }) => DateTime.fromDateUnsafe(at))
    }, sql.withTransaction)
    return {
      hasAccounts: askExists(reads, "accounts.exist")`SELECT 1 FROM accounts LIMIT 1`,
      exists: (account_id) =>
        askExists(reads, "accounts.find", account_id)`SELECT 1 FROM accounts WHERE id = ${account_id}`,
      createAccount: ({ account_id, name }, workspace, key) =>
        Effect.gen(function* () {
          // An audit entry proves that the id was used before: an erased account leaves its entries.
          const [usedBefore] = yield* sql`SELECT 1 FROM audit_entries WHERE account_id = ${account_id} LIMIT 1`
          const created =
            usedBefore === undefined
              ? yield* insertOnce(
                  sql`
                    INSERT INTO accounts (id, name, created_at)
                    VALUES (${account_id}, ${name}, ${DateTime.toDate(workspace.created_at)})
                    ON CONFLICT (id) DO NOTHING RETURNING true AS is_new`,
                  { action: "account.create", account_id }
                )
              : { hasRow: false, acts: [] }
          if (!created.hasRow) {
            const [existing] = yield* sql<{ name: string }>`SELECT name FROM accounts WHERE id = ${account_id}`
            if (existing === undefined) return "deleted"
            // The key exists if an earlier attempt succeeded and its answer was lost.
            const keys = yield* sql`SELECT 1 FROM api_keys WHERE hash = ${bytes(key.hash)}`
            if (keys.length === 0) return existing.name === name ? "exists" : "differs"
          }
          const { acts: workspaceActs } = yield* insertWorkspace(account_id, workspace, true)
          const { acts: keyActs } = yield* insertApiKey(account_id, key)
          yield* record(sql, [...created.acts, ...workspaceActs, ...keyActs])
          return "created"
        }).pipe(sql.withTransaction, (query) => writes.ask(query, "accounts.insert", account_id)),
      listAccounts: (after, limit) => {
        const rows = askRows(reads, "accounts.list")<Dated<Account>>`
          SELECT id AS account_id, name, created_at FROM accounts
          ${after === undefined ? sql`` : sql`WHERE id > ${after}`} ORDER BY id LIMIT ${limit}`
        return Effect.map(rows, Arr.map(fromDated<Account>))
      },
      eraseAccount: eraseAccount(writes),
      createWorkspace: (account_id, workspace) =>
        writes.ask(insertAndRecord(insertWorkspace(account_id, workspace, false)), "workspaces.insert", account_id),
      findWorkspace: (workspace_id) => Effect.map(reads.ask(selectOwner(workspace_id), "workspaces.find"), Arr.head),
      makeDefault: (account_id, workspace_id) =>
        writes.ask(makeDefault(account_id, workspace_id), "workspaces.default", account_id),
      deleteWorkspace: (workspace_id, when, keepIfInUse = false, within) =>
        writes.ask(deleteWorkspace(workspace_id, when, keepIfInUse, within), "workspaces.delete"),
      listWorkspaces: (account_id, first, limit) => {
        const rows = askRows(reads, "workspaces.list", account_id)<Dated<Workspace>>`
          SELECT id AS workspace_id, name, is_default, created_at, deleted_at FROM workspaces
          WHERE account_id = ${account_id} ${
            first === undefined
              ? sql``
              : sql`AND (created_at, id) >= (
                  SELECT created_at, id FROM workspaces WHERE account_id = ${account_id} AND id = ${first})`
          }
          ORDER BY created_at, id LIMIT ${limit}`
        return Effect.map(rows, Arr.map(fromDated<Workspace>))
      },
      addApiKey: (account_id, key) => writes.ask(addApiKey(account_id, key), "api_keys.insert", account_id),
      revokeApiKey: (hash, when, within) => writes.ask(revokeApiKey(hash, when, within), "api_keys.revoke"),
      listApiKeys: (account_id, first, limit) => {
        const rows = askRows(reads, "api_keys.list", account_id)<Dated<ApiKeyRecord>>`
          SELECT encode(hash, 'hex') AS hash, name, role, created_at, revoked_at FROM api_keys
          WHERE account_id = ${account_id} ${
            first === undefined
              ? sql``
              : sql`AND (created_at, hash) >= (
                  SELECT created_at, hash FROM api_keys WHERE account_id = ${account_id} AND hash = ${bytes(first)})`
          }
          ORDER BY created_at, api_keys.hash LIMIT ${limit}`
        return Effect.map(rows, Arr.map(fromDated<ApiKeyRecord>))
      },
      listClientKeys: (account_id, limit) => askRows(reads, "api_keys.list", account_id)<
        Pick<ApiKeyRecord, "hash" | "name">
      >`
        SELECT encode(hash, 'hex') AS hash, name FROM api_keys
        WHERE account_id = ${account_id} AND role = 'ordinary' AND revoked_at IS NULL
        ORDER BY created_at, api_keys.hash LIMIT ${limit}`
    }
  })
)

export const workspaceResolver = Layer.effect(
  WorkspaceResolver,
  Effect.gen(function* () {
    const { reads } = yield* Database
    const { sql } = reads
    const operation = "workspaces.resolve"
    const read = ({ id }: { readonly id: WorkspaceId }) => id
    const findDefault = makeLookUp(reads, {
      operation,
      by: { account_id: "uuid" },
      select: ({ account_id }) => sql<{ readonly id: WorkspaceId }>`
        SELECT id FROM workspaces WHERE account_id = ${account_id} AND deleted_at IS NULL AND is_default`,
      read
    })
    const find = makeLookUp(reads, {
      operation,
      by: { account_id: "uuid", id: "uuid" },
      select: ({ account_id, id }) => sql<{ readonly id: WorkspaceId }>`
        SELECT id FROM workspaces WHERE account_id = ${account_id} AND deleted_at IS NULL AND id = ${id}`,
      read
    })
    return {
      resolve: (account_id, requested) =>
        requested === undefined ? findDefault({ account_id }) : find({ account_id, id: requested })
    }
  })
)
