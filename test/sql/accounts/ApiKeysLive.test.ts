import { DateTime, Effect, Option } from "effect"
import type { ApiKeyHash, CredentialId } from "../../../src/domain/Identifiers.ts"
import { AccountRepository } from "../../../src/port/AccountRepository.ts"
import { CredentialRepository } from "../../../src/port/CredentialRepository.ts"
import { ApiKeys, maxPrefetchedBytes } from "../../../src/port/ApiKeys.ts"
import { newTenant } from "../../support/database/newTenant.ts"
import { insertPlain, plainCredential, plainSealedKey } from "../../support/database/plainCredential.ts"
import { databases } from "../../support/database/stores.ts"
import { assert, layerLive } from "../../support/it.ts"

for (const [name, store] of databases) {
  layerLive(store)(`API keys ${name}`, (it) => {
    it.effect("the look-up of an API key prefetches only current rows of that key's account (D5, D43)", function* () {
      const { find } = yield* ApiKeys
      const { account_id, hash, workspace_id } = yield* newTenant
      const stranger = yield* newTenant
      const stored = yield* insertPlain(account_id, plainCredential(workspace_id), plainSealedKey())
      const prefetched = (hash: ApiKeyHash, reading?: CredentialId, withSealedKey?: boolean) =>
        Effect.map(find(hash, reading, withSealedKey), (key) => Option.getOrThrow(key).prefetched)

      assert.deepStrictEqual(yield* prefetched(hash, stored.id), {
        account_id,
        bytes: 0,
        credential: { id: stored.id, row: Option.some(stored) }
      })
      assert.deepStrictEqual(yield* prefetched(stranger.hash, stored.id), {
        account_id: stranger.account_id,
        bytes: 0,
        credential: { id: stored.id, row: Option.none() }
      })
      assert.deepStrictEqual(yield* prefetched(hash, stored.id, true), {
        account_id,
        bytes: plainSealedKey().sealed.length,
        sealed: { id: stored.id, row: yield* (yield* CredentialRepository).findSealed(account_id, stored.id) }
      })
      assert.deepStrictEqual(yield* prefetched(stranger.hash, stored.id, true), {
        account_id: stranger.account_id,
        bytes: 0,
        sealed: { id: stored.id, row: Option.none() }
      })
      assert.deepStrictEqual(yield* prefetched(hash), {
        account_id,
        default_workspace_id: workspace_id,
        has_marks: false
      })
      const lists = { allowed_models: ["m".repeat(maxPrefetchedBytes - 1), "n"] }
      const longest = yield* insertPlain(account_id, { ...plainCredential(workspace_id), ...lists }, plainSealedKey())
      assert.deepStrictEqual(yield* prefetched(hash, longest.id), {
        account_id,
        bytes: maxPrefetchedBytes,
        credential: { id: longest.id, row: Option.some(longest) }
      })
      assert.deepStrictEqual(yield* prefetched(hash, longest.id, true), {
        account_id,
        bytes: maxPrefetchedBytes + plainSealedKey().sealed.length
      })
      yield* (yield* AccountRepository).deleteWorkspace(workspace_id, yield* DateTime.now)
      assert.deepStrictEqual(yield* prefetched(hash), { account_id, default_workspace_id: null, has_marks: false })
    })
  })
}
