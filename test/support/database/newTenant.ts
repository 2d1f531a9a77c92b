import { createHash, randomUUID } from "node:crypto"
import { DateTime, Effect } from "effect"
import { AccountId, ApiKeyHash, WorkspaceId } from "../../../src/domain/Identifiers.ts"
import type { ApiKeyRole } from "../../../src/domain/Principal.ts"
import { AccountRepository } from "../../../src/port/AccountRepository.ts"

const newAccountId = Effect.sync(() => AccountId.make(randomUUID()))
export const newWorkspaceId = Effect.sync(() => WorkspaceId.make(randomUUID()))
export const newHash = Effect.sync(() => ApiKeyHash.make(createHash("sha256").update(randomUUID()).digest("hex")))

/** An account with its default workspace and management key, as the store has them. */
export const newTenant = Effect.gen(function* () {
  const account_id = yield* newAccountId
  const workspace_id = yield* newWorkspaceId
  const hash = yield* newHash
  const created_at = yield* DateTime.now
  yield* (yield* AccountRepository).createAccount(
    { account_id, name: "a test account" },
    { workspace_id, name: "default", created_at },
    { hash, name: "first", role: "management", created_at }
  )
  return { account_id, workspace_id, hash }
})

export const addWorkspace = Effect.fnUntraced(function* (account_id: AccountId) {
  const workspace_id = yield* newWorkspaceId
  const created_at = yield* DateTime.now
  yield* (yield* AccountRepository).createWorkspace(account_id, { workspace_id, name: "another", created_at })
  return workspace_id
})

export const addApiKey = Effect.fnUntraced(function* (account_id: AccountId, role: ApiKeyRole = "ordinary") {
  const hash = yield* newHash
  const created_at = yield* DateTime.now
  yield* (yield* AccountRepository).addApiKey(account_id, { hash, name: "another", role, created_at })
  return hash
})
