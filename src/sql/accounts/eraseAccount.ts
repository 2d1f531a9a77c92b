import { randomUUID } from "node:crypto"
import { DateTime, Effect, Option } from "effect"
import type { AuditAct } from "../../domain/AuditEvent.ts"
import type { AccountId, ApiKeyHash, LinkId, WorkspaceId } from "../../domain/Identifiers.ts"
import { actingPrincipal, actorOf } from "../../domain/Principal.ts"
import type { ErasureStep } from "../../port/AccountRepository.ts"
import { DatabaseFailure } from "../../port/DatabaseFailure.ts"
import { entryOf, insertEntry, wasRecorded } from "../audit/auditing.ts"
import type { ConnectionPool } from "../connection/ConnectionPool.ts"
import { type Recorded, recordedOf } from "../rows/credentialRows.ts"
import { keyColumns } from "../rows/poolRows.ts"
import { lockDistributedAccount } from "../rows/lockDistributedAccount.ts"
import { erasingRights, missingRights } from "../schema/inspectSession.ts"

const notGranted = new DatabaseFailure({ kind: "AuthorizationError", sqlstate: "42501", constraint: undefined })

/**
 * Deletes the API keys and links of an account and up to `limit` of its credentials and idempotency records, in one
 * transaction with their audit entry; then the account, if nothing is left. Returns none for an unknown account. The
 * lock on the account blocks statements that add to it, and marking its workspaces as deleted waits for creates in
 * progress: so an account that the last step finds empty stays empty. Locks pools before credentials, in key order.
 */
export const eraseAccount =
  ({ ask, distributed, sql }: ConnectionPool) =>
  (account_id: AccountId, at: DateTime.Utc, limit: number) => {
    const operation = randomUUID()
    const step = Effect.gen(function* () {
      // The first step already fails if the role lacks a right that only the last one needs.
      if ((yield* missingRights(sql, erasingRights)).length > 0) return yield* notGranted
      yield* lockDistributedAccount({ distributed, sql }, account_id, "exclusive")
      const accounts = yield* sql`SELECT id FROM accounts WHERE id = ${account_id} FOR UPDATE`
      if (accounts.length === 0) {
        // An earlier attempt may have deleted the account, and its answer was lost.
        const done = yield* wasRecorded(sql, account_id, operation)
        return done ? Option.some({ credentials: 0, idempotency_records: 0, done }) : Option.none<ErasureStep>()
      }
      const apiKeys = yield* sql<{ hash: ApiKeyHash; live: boolean }>`
        DELETE FROM api_keys WHERE account_id = ${account_id}
        RETURNING encode(hash, 'hex') AS hash, revoked_at IS NULL AS live`
      const links = yield* sql<{ id: LinkId; open: boolean }>`
        DELETE FROM links WHERE account_id = ${account_id}
        RETURNING id, ended IS NULL AND expires_at > now() AS open`
      const workspaces = yield* sql<{ id: WorkspaceId }>`
        UPDATE workspaces SET deleted_at = ${DateTime.toDate(at)}
        WHERE account_id = ${account_id} AND deleted_at IS NULL RETURNING id`
      yield* sql`
        SELECT FROM pools WHERE account_id = ${account_id} ORDER BY ${keyColumns(sql, "pools")} FOR UPDATE`
      const credentials = yield* sql<Recorded>`
        DELETE FROM credentials WHERE account_id = ${account_id} AND id = ANY(ARRAY(
          SELECT id FROM credentials WHERE account_id = ${account_id}
          ORDER BY workspace_id, created_at, id LIMIT ${limit} FOR UPDATE
        )) RETURNING account_id, workspace_id, id, provider, label`
      const idempotency_records = yield* sql`
        DELETE FROM idempotency_records WHERE account_id = ${account_id} AND key_hash = ANY(ARRAY(
          SELECT key_hash FROM idempotency_records WHERE account_id = ${account_id}
          ORDER BY key_hash LIMIT ${limit - credentials.length} FOR UPDATE
        )) RETURNING 1`
      const done = credentials.length + idempotency_records.length < limit
      if (done) {
        yield* sql`DELETE FROM pools WHERE account_id = ${account_id}`
        yield* sql`DELETE FROM workspaces WHERE account_id = ${account_id}`
        yield* sql`DELETE FROM accounts WHERE id = ${account_id}`
      }
      const acts: ReadonlyArray<AuditAct> = [
        ...apiKeys
          .filter(({ live }) => live)
          .map(({ hash }): AuditAct => ({ action: "api_key.revoke", account_id, api_key_hash: hash })),
        ...links
          .filter(({ open }) => open)
          .map(({ id }): AuditAct => ({ action: "link.revoke", account_id, link_id: id })),
        ...workspaces.map(({ id }): AuditAct => ({ action: "workspace.delete", account_id, workspace_id: id })),
        ...credentials.map((row): AuditAct => ({ action: "credential.delete", ...recordedOf(row) })),
        ...(done ? [{ action: "account.delete", account_id } as const] : [])
      ]
      const entry = entryOf(actorOf(yield* actingPrincipal), acts)
      if (acts.length > 0) yield* insertEntry(sql, { account_id, operation: done ? operation : randomUUID(), entry })
      return Option.some({ credentials: credentials.length, idempotency_records: idempotency_records.length, done })
    })
    return ask(sql.withTransaction(step), "accounts.erase", account_id)
  }
