import { randomUUID } from "node:crypto"
import { assert, type Vitest } from "@effect/vitest"
import { Arbitrary, DateTime, Effect, Exit, Option, Schema } from "effect"
import { Credential } from "../../src/domain/Credential.ts"
import { type AccountId, CredentialId, type WorkspaceId } from "../../src/domain/Identifiers.ts"
import type { SealedKey } from "../../src/domain/SealedKey.ts"
import { CredentialRepository, type CredentialUpdate } from "../../src/port/CredentialRepository.ts"
import { IdempotencyRecords } from "../../src/port/IdempotencyRecords.ts"
import { insertPlain, plainCredential, plainSealedKey } from "../support/database/plainCredential.ts"
import { layerLive } from "../support/process/layerLive.ts"
import { elementOf, sealedKey, storedCredential } from "../support/memory/arbitraries.ts"
import { addWorkspace, newTenant, newWorkspaceId } from "../support/database/newTenant.ts"
import { type Ports, stores } from "../support/database/stores.ts"

const encode = Schema.encodeSync(Credential)
const hex = ({ kek_id, sealed, wrapped_dek }: SealedKey) =>
  [kek_id, ...[wrapped_dek, sealed].map((bytes) => Buffer.from(bytes).toString("hex"))].join()

/** A row as it is found, with bytes that can be compared. */
const found = Effect.fnUntraced(function* (account_id: AccountId, id: CredentialId) {
  const { findSealed } = yield* CredentialRepository
  return Option.map(yield* findSealed(account_id, id), ({ credential, sealed, ...rest }) => ({
    ...rest,
    credential: encode(credential),
    sealed: hex(sealed)
  }))
})

const stored = (account_id: AccountId, workspace_id: WorkspaceId) =>
  insertPlain(account_id, plainCredential(workspace_id), plainSealedKey(1))

/** An update of the name that was made from a revision. */
const renaming = (credential: Credential, revision: number, name: string): CredentialUpdate => ({
  credential: { ...credential, name },
  revision,
  sealed: undefined,
  key_version: 1,
  fields: ["name"]
})

type Stored = typeof storedCredential extends Arbitrary.Arbitrary<infer A> ? A : never
/** Shrinking repeats what was generated, and an id is taken only once. */
const fresh = (credential: Stored, workspace_id: WorkspaceId) => ({
  ...credential,
  workspace_id,
  id: CredentialId.make(randomUUID())
})

/** What another account reads of a credential and does to it: nothing is the only right answer. */
const touchedByStranger = Effect.gen(function* () {
  const { delete: remove, findById, findSealed, update } = yield* CredentialRepository
  const [owner, stranger] = [yield* newTenant, yield* newTenant]
  const credential = yield* stored(owner.account_id, owner.workspace_id)
  const attempts = (id: CredentialId) => [
    Effect.map(findById(stranger.account_id, id), Option.isSome),
    Effect.map(findSealed(stranger.account_id, id), Option.isSome),
    update(stranger.account_id, renaming({ ...credential, id }, 1, "taken")),
    remove(stranger.account_id, id)
  ]
  const answers = yield* Effect.all([credential.id, CredentialId.make(randomUUID())].flatMap(attempts))
  const after = Option.getOrUndefined(yield* found(owner.account_id, credential.id))
  return { answers, name: after?.credential.name, revision: after?.revision }
})
const untouched = { answers: Array.from({ length: 8 }, () => false), name: null, revision: 1 }

const contract = (it: Vitest.MethodsNonLive<Ports>) => {
  it.effect.prop(
    "concurrent inserts of two accounts are each found as inserted, byte for byte, and by their own account only (D32, T6)",
    [Arbitrary.array(Arbitrary.all([storedCredential, sealedKey]), { minLength: 2, maxLength: 12 })],
    ([given]) =>
      Effect.gen(function* () {
        const repository = yield* CredentialRepository
        const tenants = [yield* newTenant, yield* newTenant]
        const rows = given.flatMap(([credential, sealed], index) => {
          const tenant = tenants[index % 2]
          return tenant === undefined ? [] : [{ sealed, tenant, credential: fresh(credential, tenant.workspace_id) }]
        })
        const together = { concurrency: "unbounded" } as const
        const inserted = yield* Effect.forEach(
          rows,
          ({ credential, sealed, tenant }) => insertPlain(tenant.account_id, credential, sealed),
          together
        )
        assert.deepEqual(
          inserted.map(({ created_at: _created_at, sort_order: _order, ...given }) => given),
          rows.map(({ credential }) => credential)
        )
        for (const { account_id } of tenants) {
          const found = yield* Effect.forEach(inserted, ({ id }) => repository.findById(account_id, id), together)
          assert.deepEqual(
            found.map((credential) => Option.map(credential, (one) => encode(one))),
            inserted.map((credential, index) =>
              rows[index]?.tenant.account_id === account_id ? Option.some(encode(credential)) : Option.none()
            )
          )
        }
        for (const [index, { credential, sealed, tenant }] of rows.entries()) {
          const both = Option.getOrThrow(yield* repository.findSealed(tenant.account_id, credential.id))
          assert.deepEqual<unknown>(both.credential, inserted[index])
          assert.sameMembers(Object.keys(both.credential), Object.keys(Credential.fields))
          assert.isBelow(both.credential.sort_order, rows.length)
          assert.strictEqual(hex(both.sealed), hex(sealed))
        }
      }),
    { arbitrary: { runs: 40 } }
  )

  it.effect("a credential in an unknown workspace, or in another account's, is not stored (D6)", () =>
    Effect.gen(function* () {
      const repository = yield* CredentialRepository
      const [{ account_id }, stranger] = [yield* newTenant, yield* newTenant]
      for (const workspace_id of [stranger.workspace_id, yield* newWorkspaceId]) {
        const given = plainCredential(workspace_id)
        assert.isTrue(Exit.isFailure(yield* Effect.exit(repository.insert(account_id, given, plainSealedKey()))))
        assert.isTrue(Option.isNone(yield* repository.findById(account_id, given.id)))
        assert.isTrue(Option.isNone(yield* repository.findById(stranger.account_id, given.id)))
      }
    })
  )

  it.effect("an insert may be repeated, but an id that is taken is not reused for another key", () =>
    Effect.gen(function* () {
      const repository = yield* CredentialRepository
      const { account_id, workspace_id } = yield* newTenant
      const given = plainCredential(workspace_id)
      const first = yield* insertPlain(account_id, given, plainSealedKey())
      yield* repository.insert(account_id, plainCredential(workspace_id), plainSealedKey(1))
      assert.deepEqual(encode(yield* insertPlain(account_id, given, plainSealedKey())), encode(first))
      assert.isTrue(Exit.isFailure(yield* Effect.exit(repository.insert(account_id, given, plainSealedKey(1)))))
      const { credential, sealed } = Option.getOrThrow(yield* found(account_id, given.id))
      assert.deepStrictEqual([credential, sealed], [encode(first), hex(plainSealedKey())])
    })
  )

  const place = Arbitrary.all({
    account: elementOf([0, 1] as const),
    workspace: elementOf([0, 1] as const),
    provider: elementOf(["openai", "anthropic", "anthropic/2"] as const)
  })

  it.effect.prop(
    "sort_order counts from 0 within each workspace and provider (D32)",
    [Arbitrary.array(place, { maxLength: 25 })],
    ([places]) =>
      Effect.gen(function* () {
        const accounts = yield* Effect.forEach([0, 1], () =>
          Effect.gen(function* () {
            const { account_id, workspace_id } = yield* newTenant
            return { account_id, workspaces: [workspace_id, yield* addWorkspace(account_id)] as const }
          })
        )
        const next = new Map<string, number>()
        for (const { account, provider, workspace } of places) {
          const { account_id, workspaces } = accounts[account] ?? assert.fail("no account")
          const given = { ...plainCredential(workspaces[workspace]), provider }
          const slot = `${given.workspace_id} ${provider}`
          const expected = next.get(slot) ?? 0
          next.set(slot, expected + 1)
          assert.strictEqual((yield* insertPlain(account_id, given, plainSealedKey())).sort_order, expected)
        }
      }),
    { arbitrary: { runs: 20, size: 25 } }
  )

  it.effect.prop(
    "an update stores policy, name, label and key, and nothing else (L9)",
    [storedCredential, sealedKey],
    ([changed, sealed]) =>
      Effect.gen(function* () {
        const { update } = yield* CredentialRepository
        const { account_id, workspace_id } = yield* newTenant
        const before = yield* stored(account_id, workspace_id)
        const { created_at, id, provider, sort_order } = before
        const credential = { ...changed, workspace_id, created_at, id, provider, sort_order }
        const other = { created_at: DateTime.makeUnsafe(1), sort_order: 7 } as const
        const given = { credential: { ...credential, ...other }, revision: 1, sealed, key_version: 2 }
        assert.isTrue(yield* update(account_id, { ...given, fields: ["key", "name"] }))
        assert.deepStrictEqual(Option.getOrThrow(yield* found(account_id, id)), {
          credential: encode(credential),
          sealed: hex(sealed),
          revision: 2,
          key_version: 2,
          workspace_deleted: false
        })
      }),
    { arbitrary: { runs: 20 } }
  )

  it.effect("an update made from another revision stores nothing (L9)", () =>
    Effect.gen(function* () {
      const { update } = yield* CredentialRepository
      const { account_id, workspace_id } = yield* newTenant
      const credential = yield* stored(account_id, workspace_id)
      for (const revision of [0, 2]) {
        assert.isFalse(yield* update(account_id, renaming(credential, revision, "lost")))
      }
      assert.isTrue(yield* update(account_id, renaming(credential, 1, "first")))
      assert.isFalse(yield* update(account_id, renaming(credential, 1, "lost")))
      assert.isFalse(
        yield* update(account_id, { ...renaming(credential, 1, "first"), sealed: plainSealedKey(9), fields: ["key"] })
      )
      const row = Option.getOrThrow(yield* found(account_id, credential.id))
      assert.deepStrictEqual([row.credential.name, row.revision, row.sealed], ["first", 2, hex(plainSealedKey(1))])
    })
  )

  it.effect("of updates at the same time from one revision, one is stored (L9)", () =>
    Effect.gen(function* () {
      const { update } = yield* CredentialRepository
      const { account_id, workspace_id } = yield* newTenant
      const credential = yield* stored(account_id, workspace_id)
      const names = Array.from({ length: 12 }, (_, n) => `name ${n}`)
      const won = yield* Effect.forEach(names, (name) => update(account_id, renaming(credential, 1, name)), {
        concurrency: "unbounded"
      })
      assert.lengthOf(
        won.filter((one) => one),
        1
      )
      const row = Option.getOrThrow(yield* found(account_id, credential.id))
      assert.deepStrictEqual([row.credential.name, row.revision], [names[won.indexOf(true)], 2])
    })
  )

  it.effect("a credential is deleted once, with its key, and its idempotency record stays (L11)", () =>
    Effect.gen(function* () {
      const repository = yield* CredentialRepository
      const records = yield* IdempotencyRecords
      const { account_id, workspace_id } = yield* newTenant
      const key_hash = new Uint8Array(32).fill(3)
      const record = { key_hash, fingerprint: new Uint8Array(32) }
      const made = yield* repository.insert(account_id, plainCredential(workspace_id), plainSealedKey(), record)
      const { id } = Option.getOrThrow(made)
      assert.isTrue(yield* repository.delete(account_id, id))
      for (let n = 0; n < 2; n++) {
        assert.isFalse(yield* repository.delete(account_id, id))
        assert.isTrue(Option.isNone(yield* repository.findById(account_id, id)))
        assert.isTrue(Option.isNone(yield* repository.findSealed(account_id, id)))
      }
      assert.strictEqual(Option.getOrThrow(yield* records.find(account_id, key_hash)).credential_id, id)
      const again = yield* repository.insert(account_id, plainCredential(workspace_id), plainSealedKey(), record)
      assert.isTrue(Option.isNone(again))
    })
  )

  it.effect("of deletions at the same time, one finds the credential (L11)", () =>
    Effect.gen(function* () {
      const repository = yield* CredentialRepository
      const { account_id, workspace_id } = yield* newTenant
      const { id } = yield* stored(account_id, workspace_id)
      const attempts = Array.from({ length: 8 }, () => repository.delete(account_id, id))
      const deleted = yield* Effect.all(attempts, { concurrency: "unbounded" })
      assert.lengthOf(
        deleted.filter((one) => one),
        1
      )
    })
  )

  it.effect(
    "another account can neither find, change nor delete a credential, as nobody can an unknown id (D5, T6)",
    () =>
      Effect.gen(function* () {
        assert.deepStrictEqual(yield* touchedByStranger, untouched)
      })
  )

  it.effect("a repository that forgets the account once would be found (T6, control)", () =>
    Effect.gen(function* () {
      const repository = yield* CredentialRepository
      const owners = new Map<CredentialId, AccountId>()
      const insert: typeof repository.insert = (account_id, credential, ...rest) => {
        owners.set(credential.id, account_id)
        return repository.insert(account_id, credential, ...rest)
      }
      const ownerOf = (account_id: AccountId, id: CredentialId) => owners.get(id) ?? account_id
      const forgetful: ReadonlyArray<Partial<typeof repository>> = [
        { findById: (account_id, id) => repository.findById(ownerOf(account_id, id), id) },
        { findSealed: (account_id, id) => repository.findSealed(ownerOf(account_id, id), id) },
        { update: (account_id, given) => repository.update(ownerOf(account_id, given.credential.id), given) },
        { delete: (account_id, id) => repository.delete(ownerOf(account_id, id), id) }
      ]
      for (const change of forgetful) {
        const broken = { ...repository, insert, ...change }
        assert.notDeepEqual(yield* Effect.provideService(touchedByStranger, CredentialRepository, broken), untouched)
      }
    })
  )
}

for (const [name, store] of stores) layerLive(store)(`a credential repository ${name}`, contract)
