import { NodeCrypto } from "@effect/platform-node"
import { DateTime, Effect, Layer, Redacted } from "effect"
import { TestClock } from "effect/testing"
import { IdempotencyKey } from "../../../src/domain/Identifiers.ts"
import { AccountRepository } from "../../../src/port/AccountRepository.ts"
import { hashApiKey } from "../../../src/runtime/ApiKey.ts"
import { AccountDeleted, Accounts } from "../../../src/service/accounts/Accounts.ts"
import { faultOf } from "../../support/keys/issuedKey.ts"
import * as MemoryStore from "../../support/memory/Memory.ts"
import { assert, it } from "../../support/it.ts"

const service = Layer.fresh(
  Accounts.layer.pipe(Layer.provide(NodeCrypto.layerSecureRandom), Layer.provideMerge(MemoryStore.layer))
)

const now = 1_700_000_000_000
const later = (millis: number) => DateTime.makeUnsafe(now + millis)

it.effect(
  "an account has its own workspaces and keys; repeated deletions keep the time of the first (D40, D42, D43)",
  () =>
    Effect.gen(function* () {
      const accounts = yield* Accounts
      yield* TestClock.setTime(now)
      assert.isTrue(yield* accounts.isEmpty)
      const [made, other] = [yield* accounts.createAccount("One Ltd"), yield* accounts.createAccount("Other Ltd")]
      assert.isFalse(yield* accounts.isEmpty)
      const { account_id, management_key, management_key_hash: hash, workspace_id } = made
      assert.strictEqual(new Set<string>([account_id, workspace_id, other.account_id, other.workspace_id]).size, 4)

      yield* TestClock.adjust(5)
      const another = yield* accounts.createWorkspace(account_id, "another")
      const issued = [
        yield* accounts.issueApiKey(account_id, { name: "another", role: "management" }),
        yield* accounts.issueApiKey(account_id, { name: "another", role: "ordinary" })
      ]
      yield* TestClock.adjust(5)
      for (let time = 0; time < 2; time++) {
        const deleted = { ...another, deleted_at: later(10), credentials: 0 }
        assert.deepEqual(yield* accounts.deleteWorkspace(another.workspace_id), deleted)
        assert.deepEqual(yield* accounts.revokeApiKey(hash), { hash, revoked_at: later(10) })
        yield* TestClock.adjust(5)
      }

      assert.deepEqual(yield* accounts.listWorkspaces(account_id), [
        { workspace_id, name: "default", is_default: true, created_at: later(0), deleted_at: null },
        { ...another, name: "another", is_default: false, created_at: later(5), deleted_at: later(10) }
      ])
      const [first, ...keys] = yield* accounts.listApiKeys(account_id)
      const name = "first management key"
      assert.deepEqual(first, {
        hash,
        name,
        role: "management",
        created_at: later(0),
        revoked_at: later(10)
      })
      const others = issued.map(({ hash, role }) => ({ hash, name: "another", role }))
      assert.sameDeepMembers(
        keys,
        others.map((key) => ({ ...key, created_at: later(5), revoked_at: null }))
      )
      for (const shown of [{ hash, key: management_key, role: "management" }, ...issued]) {
        assert.isUndefined(faultOf(Redacted.value(shown.key), shown.role === "management" ? "mk" : "ak"))
        assert.strictEqual(shown.hash, hashApiKey(shown.key))
      }
    }).pipe(Effect.provide(service))
)

it.effect("repeating the creation of an account issues no key if the account is deleted meanwhile", () =>
  Effect.gen(function* () {
    const repository = yield* AccountRepository
    const create = (store: AccountRepository["Service"]) =>
      Effect.flatMap(Accounts.make, ({ createAccountOnce }) =>
        createAccountOnce("One Ltd", IdempotencyKey.make("once"))
      ).pipe(Effect.provideService(AccountRepository, store), Effect.provide(NodeCrypto.layerSecureRandom))
    const { account_id } = yield* create(repository)
    assert.deepInclude(yield* create(repository), { account_id, replayed: true })
    const deletedMeanwhile = { ...repository, addApiKey: () => Effect.succeed("no account" as const) }
    assert.instanceOf(yield* Effect.flip(create(deletedMeanwhile)), AccountDeleted)
  }).pipe(Effect.provide(service))
)
