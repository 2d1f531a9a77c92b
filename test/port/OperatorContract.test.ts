import { createHash, randomUUID } from "node:crypto"
import { assert, type Vitest } from "@effect/vitest"
import { DateTime, Effect, Option } from "effect"
import { type AccountId, CredentialId, type WorkspaceId } from "../../src/domain/Identifiers.ts"
import { leasedAt } from "../../src/domain/routing/LastUse.ts"
import { AccountRepository } from "../../src/port/AccountRepository.ts"
import { ApiKeys } from "../../src/port/ApiKeys.ts"
import { CredentialRepository } from "../../src/port/CredentialRepository.ts"
import { CredentialUse } from "../../src/port/CredentialUse.ts"
import { WorkspaceResolver } from "../../src/port/WorkspaceResolver.ts"
import { newAccountId, newHash, newTenant } from "../support/database/newTenant.ts"
import { insertPlain, plainCredential, plainSealedKey } from "../support/database/plainCredential.ts"
import { databases, type StoredPorts } from "../support/database/stores.ts"
import { layerLive } from "../support/process/layerLive.ts"

const at = (millis: number) => DateTime.makeUnsafe(1_700_000_000_000 + millis)
const fingerprint = new Uint8Array(32)
const newRecord = Effect.sync(() => ({ key_hash: createHash("sha256").update(randomUUID()).digest(), fingerprint }))

const stored = Effect.fnUntraced(function* (account_id: AccountId, workspace_id: WorkspaceId, count: number) {
  const { insert } = yield* CredentialRepository
  return yield* Effect.forEach(Array.from({ length: count }), () =>
    Effect.flatMap(newRecord, (record) =>
      Effect.map(insert(account_id, plainCredential(workspace_id), plainSealedKey(1), record), Option.getOrThrow)
    )
  )
})

const contract = (it: Vitest.MethodsNonLive<StoredPorts>) => {
  it.effect("accounts are listed in order of their ids, page by page (F15)", () =>
    Effect.gen(function* () {
      const repository = yield* AccountRepository
      const made = [(yield* newTenant).account_id, (yield* newTenant).account_id, (yield* newTenant).account_id]
      const all = yield* repository.listAccounts(undefined, 1_000_000)
      const ids = all.map(({ account_id }) => account_id)
      assert.deepStrictEqual(ids, ids.toSorted())
      assert.includeMembers(ids, made)
      assert.include(all.find(({ account_id }) => account_id === made[0]) ?? {}, { name: "a test account" })

      const first = yield* repository.listAccounts(undefined, 2)
      const second = yield* repository.listAccounts(first[1]?.account_id, 2)
      assert.deepEqual([...first, ...second], all.slice(0, 4))
      assert.deepEqual(yield* repository.listAccounts(ids.at(-1), 2), [])
    })
  )

  it.effect(
    "a key is imported unless its hash is taken, by whichever account; the same call may be repeated (D41)",
    () =>
      Effect.gen(function* () {
        const repository = yield* AccountRepository
        const { account_id, hash: taken } = yield* newTenant
        const other = yield* newTenant
        const key = { hash: yield* newHash, name: "imported", management: false, created_at: at(5) }
        for (let time = 0; time < 2; time++) {
          assert.strictEqual(yield* repository.addApiKey(account_id, key), "added")
        }
        const differing = [
          { ...key, name: "another" },
          { ...key, management: true },
          { ...key, created_at: at(6) },
          { ...key, hash: taken }
        ]
        for (const given of differing) {
          assert.strictEqual(yield* repository.addApiKey(account_id, given), "hash taken")
        }
        assert.strictEqual(yield* repository.addApiKey(other.account_id, key), "hash taken")
        assert.strictEqual(yield* repository.addApiKey(yield* newAccountId, key), "no account")
        const keys = yield* repository.listApiKeys(account_id)
        assert.deepEqual(
          keys.find(({ name }) => name === "imported"),
          { ...key, revoked_at: null }
        )
        assert.lengthOf(keys, 2)
        assert.lengthOf(yield* repository.listApiKeys(other.account_id), 1)
      })
  )

  it.effect("an order of all credentials is stored, and new ones come last (L14)", () =>
    Effect.gen(function* () {
      const { findById, reorder } = yield* CredentialRepository
      const { account_id, workspace_id } = yield* newTenant
      const ids = (yield* stored(account_id, workspace_id, 4)).map(({ id }) => id)
      const other = yield* insertPlain(
        account_id,
        { ...plainCredential(workspace_id), provider: "cohere" },
        plainSealedKey()
      )
      const wanted = [2, 0, 3, 1].flatMap((index) => ids[index] ?? [])
      const order = { workspace_id, provider: "openai", ids: wanted }
      for (const _again of [1, 2]) {
        assert.deepStrictEqual(yield* reorder(account_id, order), Option.none())
        const places = yield* Effect.forEach(wanted, (id) =>
          Effect.map(findById(account_id, id), (found) => Option.getOrThrow(found).sort_order)
        )
        assert.deepStrictEqual(places, [0, 1, 2, 3])
      }
      assert.strictEqual(Option.getOrThrow(yield* findById(account_id, other.id)).sort_order, 0)
      assert.strictEqual(
        (yield* insertPlain(account_id, plainCredential(workspace_id), plainSealedKey())).sort_order,
        4
      )
    })
  )

  it.effect("an order with too few or foreign ids changes nothing and names them (L14)", () =>
    Effect.gen(function* () {
      const { findById, reorder } = yield* CredentialRepository
      const { account_id, workspace_id } = yield* newTenant
      const stranger = yield* newTenant
      const [first, second] = (yield* stored(account_id, workspace_id, 2)).map(({ id }) => id)
      const [foreign] = (yield* stored(stranger.account_id, stranger.workspace_id, 1)).map(({ id }) => id)
      const unknown = CredentialId.make(randomUUID())
      assert(first !== undefined && second !== undefined && foreign !== undefined)
      const mismatch = yield* reorder(account_id, { workspace_id, provider: "openai", ids: [foreign, second, unknown] })
      assert.deepStrictEqual(mismatch, Option.some({ missing: [first], foreign: [foreign, unknown] }))
      const tooFew = yield* reorder(account_id, { workspace_id, provider: "openai", ids: [second] })
      assert.deepStrictEqual(tooFew, Option.some({ missing: [first], foreign: [] }))
      const elsewhere = yield* reorder(account_id, { workspace_id, provider: "cohere", ids: [first] })
      assert.deepStrictEqual(elsewhere, Option.some({ missing: [], foreign: [first] }))
      for (const [id, sort_order] of [
        [first, 0],
        [second, 1]
      ] as const) {
        assert.strictEqual(Option.getOrThrow(yield* findById(account_id, id)).sort_order, sort_order)
      }
    })
  )

  it.effect("an erasure in steps of any size ends with no account, and leaves others alone (L13)", () =>
    Effect.gen(function* () {
      const { eraseAccount, hasAccounts, listApiKeys, listWorkspaces } = yield* AccountRepository
      const { findById, insert } = yield* CredentialRepository
      const now = yield* DateTime.now
      for (const [count, limit] of [
        [0, 1],
        [5, 2],
        [4, 4],
        [3, 100]
      ] as const) {
        const { account_id, hash, workspace_id } = yield* newTenant
        const stranger = yield* newTenant
        const made = yield* stored(account_id, workspace_id, count)
        const uses = made.map(({ id }) => ({ account_id, credential_id: id, ...leasedAt(1) }))
        yield* (yield* CredentialUse).store(uses)
        const [kept] = yield* stored(stranger.account_id, stranger.workspace_id, 1)
        const steps: Array<{ readonly credentials: number; readonly idempotency_records: number }> = []
        for (;;) {
          const step = Option.getOrThrow(yield* eraseAccount(account_id, now, limit))
          assert.isAtMost(step.credentials + step.idempotency_records, limit)
          steps.push(step)
          if (step.done) break
          assert.deepStrictEqual(yield* (yield* ApiKeys).find(hash), Option.none(), "refused from the first step on")
          assert.deepStrictEqual(yield* (yield* WorkspaceResolver).resolve(account_id, undefined), Option.none())
          const late = yield* Effect.flip(insert(account_id, plainCredential(workspace_id), plainSealedKey()))
          assert.strictEqual(late._tag, "WorkspaceGone")
        }
        assert.strictEqual(
          steps.reduce((sum, step) => sum + step.credentials, 0),
          count
        )
        assert.deepStrictEqual(yield* eraseAccount(account_id, now, limit), Option.none())
        assert.deepStrictEqual(yield* listWorkspaces(account_id), [])
        assert.deepStrictEqual(yield* listApiKeys(account_id), [])
        for (const { id } of made) {
          assert.deepStrictEqual(yield* (yield* CredentialUse).find(account_id, id), Option.none())
        }
        assert.isTrue(yield* hasAccounts)
        assert.lengthOf(yield* listWorkspaces(stranger.account_id), 1)
        assert.lengthOf(yield* listApiKeys(stranger.account_id), 1)
        assert(kept !== undefined)
        assert.isTrue(Option.isSome(yield* findById(stranger.account_id, kept.id)))
      }
    })
  )
}

for (const [name, store] of databases) layerLive(store)(`what operators do, ${name}`, contract)
