import { NodeCrypto } from "@effect/platform-node"
import { assert, describe, it } from "@effect/vitest"
import { DateTime, Effect, Layer, Redacted } from "effect"
import { TestClock } from "effect/testing"
import { hashApiKey } from "../../src/port/ApiKey.ts"
import { Accounts, type NotKnown } from "../../src/service/Accounts.ts"
import { faultOf } from "../support/keys/issuedKey.ts"
import * as MemoryStore from "../support/memory/Memory.ts"
import { Memory } from "../support/memory/Memory.ts"
import { newAccountId, newHash, newWorkspaceId } from "../support/database/newTenant.ts"

const service = Layer.fresh(
  Accounts.layer.pipe(Layer.provide(NodeCrypto.layerSecureRandom), Layer.provideMerge(MemoryStore.layer))
)

const now = 1_700_000_000_000
const later = (millis: number) => DateTime.makeUnsafe(now + millis)

/** An account made at `now`. */
const account = Effect.gen(function* () {
  yield* TestClock.setTime(now)
  return yield* (yield* Accounts).createAccount("Example Ltd")
})

const unknown = <A>(
  kind: NotKnown["kind"],
  effect: Effect.Effect<A, NotKnown | { readonly _tag: "ServiceUnavailable" }>
) =>
  Effect.map(Effect.flip(effect), (error) => {
    assert.strictEqual(error._tag === "NotKnown" ? error.kind : error._tag, kind)
  })

describe("an account (D40)", () => {
  it.effect("has ids of its own, a default workspace and a management key from its creation on", () =>
    Effect.gen(function* () {
      const accounts = yield* Accounts
      assert.isTrue(yield* accounts.isEmpty)
      const [made, other] = [yield* account, yield* account]
      assert.isFalse(yield* accounts.isEmpty)
      const ids = [made.account_id, made.workspace_id, other.account_id, other.workspace_id]
      assert.strictEqual(new Set<string>(ids).size, 4)
      assert.strictEqual(made.management_key_hash, hashApiKey(made.management_key))
      assert.isUndefined(faultOf(Redacted.value(made.management_key), "mk"))

      assert.deepEqual(yield* accounts.listWorkspaces(made.account_id), [
        { workspace_id: made.workspace_id, name: "default", is_default: true, created_at: later(0), deleted_at: null }
      ])
      const { management_key_hash: hash } = made
      const key = { hash, name: "first management key", management: true, created_at: later(0), revoked_at: null }
      assert.deepEqual(yield* accounts.listApiKeys(made.account_id), [key])
    }).pipe(Effect.provide(service))
  )

  it.effect("that is unknown gets neither workspace nor key, and lists nothing", () =>
    Effect.gen(function* () {
      const accounts = yield* Accounts
      yield* account
      const nobody = yield* newAccountId
      yield* unknown("account", accounts.createWorkspace(nobody, "another"))
      yield* unknown("account", accounts.issueApiKey(nobody, { name: "another", management: false }))
      yield* unknown("account", accounts.listWorkspaces(nobody))
      yield* unknown("account", accounts.listApiKeys(nobody))
      const { apiKeys, workspaces } = yield* Memory
      assert.deepStrictEqual([apiKeys.size, workspaces.size], [1, 1])
    }).pipe(Effect.provide(service))
  )

  it.effect("has workspaces that are not the default, each deleted at the time of the first call (D43)", () =>
    Effect.gen(function* () {
      const { createWorkspace, deleteWorkspace, listWorkspaces, makeDefault } = yield* Accounts
      const { account_id } = yield* account
      yield* TestClock.adjust(5)
      const { workspace_id } = yield* createWorkspace(account_id, "another")
      const [, found] = yield* listWorkspaces(account_id)
      const workspace = { workspace_id, name: "another", is_default: false, created_at: later(5), deleted_at: null }
      assert.deepEqual(found, workspace)
      for (let time = 0; time < 2; time++) {
        assert.deepEqual(yield* deleteWorkspace(workspace_id), {
          workspace_id,
          deleted_at: later(5),
          credentials: 0
        })
        yield* TestClock.adjust(5)
      }
      yield* unknown(
        "workspace",
        Effect.catchTag(deleteWorkspace(yield* newWorkspaceId), "DefaultWorkspaceInUse", Effect.die)
      )
      yield* unknown("workspace", makeDefault(yield* newWorkspaceId))
      yield* unknown("workspace", makeDefault(workspace_id))
    }).pipe(Effect.provide(service))
  )
})

describe("an API key (D40, D42)", () => {
  it.effect.each([true, false])(
    "is issued, shown once, stored by its hash and revoked at the time of the first call; management: %j",
    (management) =>
      Effect.gen(function* () {
        const { issueApiKey, listApiKeys, revokeApiKey } = yield* Accounts
        const { account_id } = yield* account
        yield* TestClock.adjust(5)
        const issued = yield* issueApiKey(account_id, { name: "another", management })
        const { hash } = issued
        assert.isUndefined(faultOf(Redacted.value(issued.key), management ? "mk" : "ak"))
        assert.deepStrictEqual(issued, { key: issued.key, hash: hashApiKey(issued.key), management })
        const [, found] = yield* listApiKeys(account_id)
        const key = { hash, name: "another", management, created_at: later(5), revoked_at: null }
        assert.deepEqual(found, key)
        for (let time = 0; time < 2; time++) {
          assert.deepEqual(yield* revokeApiKey(hash), { hash, revoked_at: later(5) })
          yield* TestClock.adjust(5)
        }
        yield* unknown("API key", revokeApiKey(yield* newHash))
      }).pipe(Effect.provide(service))
  )
})
