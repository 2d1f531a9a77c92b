import { assert, type Vitest } from "@effect/vitest"
import { DateTime, Effect, Option } from "effect"
import { AccountRepository } from "../../src/port/AccountRepository.ts"
import { WorkspaceResolver } from "../../src/port/WorkspaceResolver.ts"
import { layerLive } from "../support/process/layerLive.ts"
import { addWorkspace, newAccountId, newTenant, newWorkspaceId } from "../support/database/newTenant.ts"
import { type Ports, stores } from "../support/database/stores.ts"

const remove = (workspace_id: Parameters<AccountRepository["Service"]["deleteWorkspace"]>[0]) =>
  Effect.gen(function* () {
    yield* (yield* AccountRepository).deleteWorkspace(workspace_id, yield* DateTime.now)
  })

const contract = (it: Vitest.MethodsNonLive<Ports>) => {
  it.effect("resolves any workspace of the account, and to its default if none is given (section 4.1)", () =>
    Effect.gen(function* () {
      const { resolve } = yield* WorkspaceResolver
      const { account_id, workspace_id } = yield* newTenant
      const another = yield* addWorkspace(account_id)
      assert.deepStrictEqual(yield* resolve(account_id, undefined), Option.some(workspace_id))
      for (const requested of [workspace_id, another]) {
        assert.deepStrictEqual(yield* resolve(account_id, requested), Option.some(requested))
      }
    })
  )

  it.effect(
    "finds nothing for one that is unknown, another account's or deleted, nor for an unknown account (D6)",
    () =>
      Effect.gen(function* () {
        const { resolve } = yield* WorkspaceResolver
        const { account_id } = yield* newTenant
        const stranger = yield* newTenant
        const deleted = yield* addWorkspace(account_id)
        yield* remove(deleted)
        for (const requested of [yield* newWorkspaceId, stranger.workspace_id, deleted]) {
          assert.deepStrictEqual(yield* resolve(account_id, requested), Option.none())
        }
        for (const requested of [undefined, stranger.workspace_id]) {
          assert.deepStrictEqual(yield* resolve(yield* newAccountId, requested), Option.none())
        }
      })
  )

  it.effect("keeps a deleted default: nothing is found until another is given (D43)", () =>
    Effect.gen(function* () {
      const { resolve } = yield* WorkspaceResolver
      const { account_id, workspace_id } = yield* newTenant
      const another = yield* addWorkspace(account_id)
      yield* remove(workspace_id)
      assert.deepStrictEqual(yield* resolve(account_id, undefined), Option.none())
      assert.deepStrictEqual(yield* resolve(account_id, workspace_id), Option.none())
      assert.deepStrictEqual(yield* resolve(account_id, another), Option.some(another))
    })
  )
}

for (const [name, store] of stores) {
  layerLive(store)(`a workspace resolver ${name}`, contract)
}
