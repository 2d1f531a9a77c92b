import { createHash, randomUUID } from "node:crypto"
import { DateTime, Effect, Layer } from "effect"
import { AccountId } from "../../../src/domain/AccountId.ts"
import { ApiKeyHash } from "../../../src/domain/ApiKeyHash.ts"
import { WorkspaceId } from "../../../src/domain/WorkspaceId.ts"
import * as Persistence from "../../../src/wiring/Persistence.ts"
import { AccountRepository } from "../../../src/port/AccountRepository.ts"
import type { ApiKeys } from "../../../src/port/ApiKeys.ts"
import type { CredentialRepository } from "../../../src/port/CredentialRepository.ts"
import type { KekRegistry } from "../../../src/port/KekRegistry.ts"
import type { KeyUse } from "../../../src/port/KeyUse.ts"
import type { Receipts } from "../../../src/port/Receipts.ts"
import type { WorkspaceResolver } from "../../../src/port/WorkspaceResolver.ts"
import type { WrappedKeys } from "../../../src/port/WrappedKeys.ts"
import { freshDatabase, settingsFor } from "./freshDatabase.ts"
import * as Memory from "../memory/Memory.ts"

export type Ports =
  AccountRepository | ApiKeys | CredentialRepository | KekRegistry | KeyUse | Receipts | WorkspaceResolver | WrappedKeys

const onPostgres = (batching: boolean) =>
  Layer.unwrap(
    Effect.map(freshDatabase, (url) => {
      const { database, ...settings } = settingsFor(url)
      return Persistence.layer({ ...settings, database: { ...database, batching } })
    })
  )

/** The implementations of every port that stores something: they keep the same contract. */
export const stores: ReadonlyArray<readonly [name: string, store: Layer.Layer<Ports>]> = [
  ["in memory", Memory.layer],
  ["on PostgreSQL", Layer.orDie(onPostgres(true))],
  ["on PostgreSQL, each request with a statement of its own", Layer.orDie(onPostgres(false))]
]

export const newAccountId = Effect.sync(() => AccountId.make(randomUUID()))
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
    { hash, name: "first", management: true, created_at }
  )
  return { account_id, workspace_id, hash }
})

export const addWorkspace = Effect.fnUntraced(function* (account_id: AccountId) {
  const workspace_id = yield* newWorkspaceId
  const created_at = yield* DateTime.now
  yield* (yield* AccountRepository).createWorkspace(account_id, { workspace_id, name: "another", created_at })
  return workspace_id
})

export const addApiKey = Effect.fnUntraced(function* (account_id: AccountId, management: boolean = false) {
  const hash = yield* newHash
  const created_at = yield* DateTime.now
  yield* (yield* AccountRepository).addApiKey(account_id, { hash, name: "another", management, created_at })
  return hash
})
