import { assert, type Vitest } from "@effect/vitest"
import { DateTime, Effect, Option } from "effect"
import type { ApiKeyHash, CredentialId } from "../../src/domain/Identifiers.ts"
import { AccountRepository } from "../../src/port/AccountRepository.ts"
import { ApiKeys, type FoundApiKey } from "../../src/port/ApiKeys.ts"
import { insertPlain, plainCredential, plainSealedKey } from "../support/database/plainCredential.ts"
import { layerLive } from "../support/process/layerLive.ts"
import { addApiKey, newHash, newTenant } from "../support/database/newTenant.ts"
import { type Ports, stores } from "../support/database/stores.ts"

const revoke = (hash: Parameters<AccountRepository["Service"]["revokeApiKey"]>[0]) =>
  Effect.gen(function* () {
    yield* (yield* AccountRepository).revokeApiKey(hash, yield* DateTime.now)
  })

const contract = (it: Vitest.MethodsNonLive<Ports>) => {
  it.effect("a live key is found with its account and kind (section 5)", () =>
    Effect.gen(function* () {
      const { find } = yield* ApiKeys
      const { account_id, hash } = yield* newTenant
      const ordinary = yield* addApiKey(account_id)
      const kindOf = ({ account_id, management }: FoundApiKey) => ({ account_id, management })
      assert.deepEqual(Option.map(yield* find(hash), kindOf), Option.some({ account_id, management: true }))
      assert.deepEqual(Option.map(yield* find(ordinary), kindOf), Option.some({ account_id, management: false }))
    })
  )

  it.effect("what is read along with a key is the account's own, and as it is now (D5, D43)", () =>
    Effect.gen(function* () {
      const { find } = yield* ApiKeys
      const { account_id, hash, workspace_id } = yield* newTenant
      const stranger = yield* newTenant
      const stored = yield* insertPlain(account_id, plainCredential(workspace_id), plainSealedKey())
      const prefetched = (hash: ApiKeyHash, reading?: CredentialId) =>
        Effect.map(find(hash, reading), (key) => Option.getOrThrow(key).prefetched)

      const own = yield* prefetched(hash, stored.id)
      const foreign = yield* prefetched(stranger.hash, stored.id)
      if (own === undefined || foreign === undefined) return
      assert.deepStrictEqual(own, { account_id, credential: { id: stored.id, found: Option.some(stored) } })
      assert.deepStrictEqual(foreign, {
        account_id: stranger.account_id,
        credential: { id: stored.id, found: Option.none() }
      })
      assert.deepStrictEqual(yield* prefetched(hash), { account_id, default_workspace_id: workspace_id })
      yield* (yield* AccountRepository).deleteWorkspace(workspace_id, yield* DateTime.now)
      assert.deepStrictEqual(yield* prefetched(hash), { account_id, default_workspace_id: null })
    })
  )

  it.effect("neither an unknown key nor, from the next look-up on, a revoked one is found (D3, D42)", () =>
    Effect.gen(function* () {
      const { find } = yield* ApiKeys
      const { account_id, hash } = yield* newTenant
      const another = yield* addApiKey(account_id, true)
      assert.isTrue(Option.isSome(yield* find(another)))
      yield* revoke(another)
      assert.isTrue(Option.isNone(yield* find(another)))
      assert.isTrue(Option.isNone(yield* find(yield* newHash)))
      assert.isTrue(Option.isSome(yield* find(hash)))
    })
  )

  it.effect("an account owns its live keys among many hashes, management or not (D24)", () =>
    Effect.gen(function* () {
      const { ownedBy } = yield* ApiKeys
      const { account_id, hash } = yield* newTenant
      const stranger = yield* newTenant
      const ordinary = yield* addApiKey(account_id)
      const revoked = yield* addApiKey(account_id)
      yield* revoke(revoked)
      const asked = [ordinary, stranger.hash, hash, yield* newHash, revoked, ordinary]
      assert.deepStrictEqual(Array.from(yield* ownedBy(account_id, asked)).sort(), [hash, ordinary].sort())
      assert.deepStrictEqual(Array.from(yield* ownedBy(stranger.account_id, asked)), [stranger.hash])
      assert.isEmpty(yield* ownedBy(account_id, []))
    })
  )

  it.effect("an account owns as many as a create may name (section 8)", () =>
    Effect.gen(function* () {
      const { ownedBy } = yield* ApiKeys
      const { account_id } = yield* newTenant
      const hashes = yield* Effect.forEach(Array.from({ length: 100 }), () => addApiKey(account_id), {
        concurrency: 10
      })
      assert.strictEqual((yield* ownedBy(account_id, hashes)).size, 100)
    })
  )
}

for (const [name, store] of stores) {
  layerLive(store)(`API keys ${name}`, contract)
}
