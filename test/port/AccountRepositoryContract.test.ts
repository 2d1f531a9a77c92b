import { assert, type Vitest } from "@effect/vitest"
import { DateTime, Effect, Option } from "effect"
import { AccountRepository } from "../../src/port/AccountRepository.ts"
import { layerLive } from "../support/process/layerLive.ts"
import { newAccountId, newHash, newTenant, newWorkspaceId } from "../support/database/newTenant.ts"
import { type Ports, stores } from "../support/database/stores.ts"

const at = (millis: number) => DateTime.makeUnsafe(1_700_000_000_000 + millis)
const millis = (time: DateTime.Utc | null) => (time === null ? null : time.epochMilliseconds - 1_700_000_000_000)

const contract = (it: Vitest.MethodsNonLive<Ports>) => {
  it.effect("there are no accounts until one is created (D40)", () =>
    Effect.gen(function* () {
      const { hasAccounts } = yield* AccountRepository
      assert.isFalse(yield* hasAccounts)
      yield* newTenant
      assert.isTrue(yield* hasAccounts)
    })
  )

  it.effect("an account has a default workspace and a key from the start, and is created only once (D40)", () =>
    Effect.gen(function* () {
      const repository = yield* AccountRepository
      const account_id = yield* newAccountId
      const workspace = { workspace_id: yield* newWorkspaceId, name: "default", created_at: at(1) }
      const key = { hash: yield* newHash, name: "first", management: true, created_at: at(2) }
      for (let time = 0; time < 2; time++) {
        assert.strictEqual(yield* repository.createAccount({ account_id, name: "a" }, workspace, key), "created")
      }
      const other = { ...key, hash: yield* newHash }
      assert.strictEqual(yield* repository.createAccount({ account_id, name: "a" }, workspace, other), "exists")
      assert.strictEqual(yield* repository.createAccount({ account_id, name: "b" }, workspace, other), "differs")
      const workspaces = yield* repository.listWorkspaces(account_id)
      assert.deepEqual(
        workspaces.map((found) => ({ ...found, created_at: millis(found.created_at) })),
        [{ ...workspace, is_default: true, created_at: 1, deleted_at: null }]
      )
      const keys = yield* repository.listApiKeys(account_id)
      assert.deepEqual(
        keys.map((found) => ({ ...found, created_at: millis(found.created_at) })),
        [{ ...key, created_at: 2, revoked_at: null }]
      )
    })
  )

  it.effect("workspaces and keys are listed in the order of creation, for one account only (D40)", () =>
    Effect.gen(function* () {
      const repository = yield* AccountRepository
      const { account_id } = yield* newTenant
      yield* newTenant
      const base = (yield* repository.listWorkspaces(account_id))[0]?.created_at ?? assert.fail("no workspace")
      const later = [2000, 1000].map((more) => DateTime.add(base, { milliseconds: more }))
      for (const created_at of later) {
        const name = String(millis(created_at))
        assert.isTrue(
          yield* repository.createWorkspace(account_id, { workspace_id: yield* newWorkspaceId, name, created_at })
        )
        const key = { hash: yield* newHash, name, management: false, created_at }
        assert.strictEqual(yield* repository.addApiKey(account_id, key), "added")
      }
      const names = later.toReversed().map((time) => String(millis(time)))
      const workspaces = yield* repository.listWorkspaces(account_id)
      assert.deepStrictEqual(
        workspaces.map(({ is_default, name }) => [is_default, name]),
        [[true, "default"], ...names.map((name) => [false, name])]
      )
      const keys = yield* repository.listApiKeys(account_id)
      assert.deepStrictEqual(
        keys.map(({ management, name }) => [management, name]),
        [[true, "first"], ...names.map((name) => [false, name])]
      )
    })
  )

  it.effect("an unknown account has neither workspace nor key, and gets none", () =>
    Effect.gen(function* () {
      const repository = yield* AccountRepository
      const account_id = yield* newAccountId
      const workspace = { workspace_id: yield* newWorkspaceId, name: "a", created_at: at(0) }
      const key = { hash: yield* newHash, name: "a", management: true, created_at: at(0) }
      assert.isFalse(yield* repository.createWorkspace(account_id, workspace))
      assert.strictEqual(yield* repository.addApiKey(account_id, key), "no account")
      assert.isEmpty(yield* repository.listWorkspaces(account_id))
      assert.isEmpty(yield* repository.listApiKeys(account_id))
    })
  )

  it.effect("a workspace is deleted once: later calls return the time of the first (D43)", () =>
    Effect.gen(function* () {
      const repository = yield* AccountRepository
      const { account_id, workspace_id } = yield* newTenant
      for (const time of [1, 2]) {
        const deleted_at = yield* repository.deleteWorkspace(workspace_id, at(time))
        assert.strictEqual(millis(Option.getOrNull(deleted_at)), 1)
      }
      const workspaces = yield* repository.listWorkspaces(account_id)
      assert.deepStrictEqual(
        workspaces.map(({ deleted_at, is_default }) => [is_default, millis(deleted_at)]),
        [[true, 1]]
      )
      assert.isTrue(Option.isNone(yield* repository.deleteWorkspace(yield* newWorkspaceId, at(3))))
    })
  )

  it.effect("a key is revoked once: later calls return the time of the first, and it is not added again (D42)", () =>
    Effect.gen(function* () {
      const repository = yield* AccountRepository
      const { account_id, hash } = yield* newTenant
      for (const time of [1, 2]) {
        const revoked_at = yield* repository.revokeApiKey(hash, at(time))
        assert.strictEqual(millis(Option.getOrNull(revoked_at)), 1)
      }
      yield* repository.addApiKey(account_id, { hash, name: "again", management: true, created_at: at(2) })
      const keys = yield* repository.listApiKeys(account_id)
      assert.deepStrictEqual(
        keys.map(({ name, revoked_at }) => [name, millis(revoked_at)]),
        [["first", 1]]
      )
      assert.isTrue(Option.isNone(yield* repository.revokeApiKey(yield* newHash, at(3))))
    })
  )
}

for (const [name, store] of stores) {
  layerLive(store)(`an account repository ${name}`, contract)
}
