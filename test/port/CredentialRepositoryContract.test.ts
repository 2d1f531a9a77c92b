import { randomUUID } from "node:crypto"
import { assert, type Vitest } from "@effect/vitest"
import { Arbitrary, Effect, Exit, Option, Schema } from "effect"
import { Credential } from "../../src/domain/Credential.ts"
import { type AccountId, CredentialId, type WorkspaceId } from "../../src/domain/Identifiers.ts"
import type { SealedKey } from "../../src/domain/SealedKey.ts"
import { CredentialRepository } from "../../src/port/CredentialRepository.ts"
import { plainCredential, plainSealedKey } from "../support/database/plainCredential.ts"
import { layerLive } from "../support/process/layerLive.ts"
import { elementOf, sealedKey, storedCredential } from "../support/memory/arbitraries.ts"
import { addWorkspace, newTenant, newWorkspaceId } from "../support/database/newTenant.ts"
import { type Ports, stores } from "../support/database/stores.ts"

const encode = Schema.encodeSync(Credential)
const hex = ({ kek_id, sealed, wrapped_dek }: SealedKey) => ({
  kek_id,
  sealed: Buffer.from(sealed).toString("hex"),
  wrapped_dek: Buffer.from(wrapped_dek).toString("hex")
})

type Stored = typeof storedCredential extends Arbitrary.Arbitrary<infer A> ? A : never
/** Shrinking repeats what was generated, and an id is taken only once. */
const fresh = (credential: Stored, workspace_id: WorkspaceId) => ({
  ...credential,
  workspace_id,
  id: CredentialId.make(randomUUID())
})

/** What one account reads of a credential of another one; nothing is the only right answer. */
const readByStranger = Effect.gen(function* () {
  const repository = yield* CredentialRepository
  const [owner, stranger] = [yield* newTenant, yield* newTenant]
  const { id } = yield* repository.insert(owner.account_id, plainCredential(owner.workspace_id), plainSealedKey())
  assert.isTrue(Option.isSome(yield* repository.findById(owner.account_id, id)))
  const found = yield* repository.findById(stranger.account_id, id)
  const sealedFound = yield* repository.findSealed(stranger.account_id, id)
  return [...Option.toArray(found), ...Option.toArray(sealedFound)]
})

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
          ({ credential, sealed, tenant }) => repository.insert(tenant.account_id, credential, sealed),
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
          assert.deepStrictEqual(hex(both.sealed), hex(sealed))
        }
      }),
    { arbitrary: { runs: 40 } }
  )

  it.effect("text comes back unchanged, including a byte order mark and a replacement character (D23)", () =>
    Effect.gen(function* () {
      const repository = yield* CredentialRepository
      const { account_id, workspace_id } = yield* newTenant
      const texts = [
        "\ufeff",
        "\ufffd",
        "\ufeff\ufffd",
        "\ufeffname of a file that was cut \ufffd",
        "a\ufeff\ufffd",
        " a ",
        ""
      ]
      for (const name of texts) {
        const given = { ...plainCredential(workspace_id), name, allowed_models: texts, allowed_user_ids: [name] }
        yield* repository.insert(account_id, given, plainSealedKey())
        const found = Option.getOrThrow(yield* repository.findById(account_id, given.id))
        assert.deepEqual([found.name, found.allowed_models, found.allowed_user_ids], [name, texts, [name]])
      }
    })
  )

  it.effect(
    "another account finds neither the credential nor its sealed key, as nobody does under an unknown id (D5, T6)",
    () =>
      Effect.gen(function* () {
        assert.isEmpty(yield* readByStranger)
        const { findById, findSealed } = yield* CredentialRepository
        const { account_id } = yield* newTenant
        const id = CredentialId.make(randomUUID())
        assert.isTrue(
          Option.isNone(yield* findById(account_id, id)) && Option.isNone(yield* findSealed(account_id, id))
        )
      })
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

  it.effect("repeating an insert changes nothing and returns the same", () =>
    Effect.gen(function* () {
      const repository = yield* CredentialRepository
      const { account_id, workspace_id } = yield* newTenant
      const given = plainCredential(workspace_id)
      const first = yield* repository.insert(account_id, given, plainSealedKey())
      yield* repository.insert(account_id, plainCredential(workspace_id), plainSealedKey(1))
      assert.deepEqual(encode(yield* repository.insert(account_id, given, plainSealedKey())), encode(first))
    })
  )

  it.effect("an id that is taken is not reused for another key, nor found by another account", () =>
    Effect.gen(function* () {
      const repository = yield* CredentialRepository
      const [owner, stranger] = [yield* newTenant, yield* newTenant]
      const given = plainCredential(owner.workspace_id)
      const first = yield* repository.insert(owner.account_id, given, plainSealedKey())
      const attempt = repository.insert(owner.account_id, given, plainSealedKey(1))
      assert.isTrue(Exit.isFailure(yield* Effect.exit(attempt)))
      const after = Option.getOrThrow(yield* repository.findSealed(owner.account_id, given.id))
      assert.deepEqual(encode(after.credential), encode(first))
      assert.deepStrictEqual(hex(after.sealed), hex(plainSealedKey()))
      assert.isTrue(Option.isNone(yield* repository.findById(stranger.account_id, given.id)))
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
        const repository = yield* CredentialRepository
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
          assert.strictEqual((yield* repository.insert(account_id, given, plainSealedKey())).sort_order, expected)
          const found = yield* repository.findById(account_id, given.id)
          assert.strictEqual(Option.getOrThrow(found).sort_order, expected)
        }
      }),
    { arbitrary: { runs: 20, size: 25 } }
  )

  it.effect("a repository that forgets the account in one look-up would be found (T6, control)", () =>
    Effect.gen(function* () {
      const repository = yield* CredentialRepository
      const owners = new Map<CredentialId, AccountId>()
      const insert: CredentialRepository["Service"]["insert"] = (account_id, credential, sealed) => {
        owners.set(credential.id, account_id)
        return repository.insert(account_id, credential, sealed)
      }
      const findById: CredentialRepository["Service"]["findById"] = (account_id, id) =>
        repository.findById(owners.get(id) ?? account_id, id)
      const findSealed: CredentialRepository["Service"]["findSealed"] = (account_id, id) =>
        repository.findSealed(owners.get(id) ?? account_id, id)
      for (const broken of [
        { ...repository, insert, findById },
        { ...repository, insert, findSealed }
      ]) {
        assert.lengthOf(yield* Effect.provideService(readByStranger, CredentialRepository, broken), 1)
      }
    })
  )
}

for (const [name, store] of stores) {
  layerLive(store)(`a credential repository ${name}`, contract)
}
