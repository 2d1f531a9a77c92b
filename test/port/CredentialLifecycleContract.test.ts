import { randomUUID } from "node:crypto"
import { assert, type Vitest } from "@effect/vitest"
import { Arbitrary, DateTime, Effect, Option, Schema } from "effect"
import { Credential } from "../../src/domain/Credential.ts"
import { type AccountId, CredentialId, type WorkspaceId } from "../../src/domain/Identifiers.ts"
import type { SealedKey } from "../../src/domain/SealedKey.ts"
import { CredentialRepository, type CredentialUpdate } from "../../src/port/CredentialRepository.ts"
import { IdempotencyRecords } from "../../src/port/IdempotencyRecords.ts"
import { layerLive } from "../support/process/layerLive.ts"
import { elementOf, integer, sealedKey, storedCredential } from "../support/memory/arbitraries.ts"
import { newTenant } from "../support/database/newTenant.ts"
import { type Placement, placement, storePlaced } from "../support/database/placement.ts"
import { plainCredential, plainSealedKey } from "../support/database/plainCredential.ts"
import { databases, type Ports, type StoredPorts, stores } from "../support/database/stores.ts"

const encode = Schema.encodeSync(Credential)
const hex = ({ kek_id, sealed, wrapped_dek }: SealedKey) =>
  [kek_id, ...[wrapped_dek, sealed].map((bytes) => Buffer.from(bytes).toString("hex"))].join()

const found = Effect.fnUntraced(function* (account_id: AccountId, id: CredentialId) {
  const { findSealed } = yield* CredentialRepository
  return Option.map(yield* findSealed(account_id, id), ({ credential, sealed, ...rest }) => ({
    ...rest,
    credential: encode(credential),
    sealed: hex(sealed)
  }))
})

const stored = Effect.fnUntraced(function* (account_id: AccountId, workspace_id: WorkspaceId) {
  const { insert } = yield* CredentialRepository
  return yield* insert(account_id, plainCredential(workspace_id), plainSealedKey(1))
})

/** An update of the name that was made from a revision. */
const renaming = (credential: Credential, revision: number, name: string): CredentialUpdate => ({
  credential: { ...credential, name },
  revision,
  sealed: undefined,
  key_version: 1,
  fields: ["name"]
})

const places = Arbitrary.all({
  given: Arbitrary.array(placement, { maxLength: 12 }),
  limit: integer(1, 5),
  provider: elementOf(["openai", "cohere", undefined] as const)
})
interface Places extends Omit<typeof places extends Arbitrary.Arbitrary<infer A> ? A : never, "given"> {
  readonly given: ReadonlyArray<Placement>
}

/** Whether pages of any limit partition what is stored, in one order, and every page counts all of it. */
const partitions = Effect.fnUntraced(function* ({ given, limit, provider }: Places) {
  const { list } = yield* CredentialRepository
  const { account_id, rows, workspaces } = yield* storePlaced(given)
  const [workspace_id] = workspaces
  const expected = rows
    .filter((row) => row.workspace_id === workspace_id && (provider ?? row.provider) === row.provider)
    .toSorted(
      (one, other) =>
        one.created_at.epochMilliseconds - other.created_at.epochMilliseconds || (one.id < other.id ? -1 : 1)
    )
  const listed: Array<Credential> = []
  for (let offset = 0; ; offset += limit) {
    const { credentials, total_count } = yield* list(account_id, { workspace_id, provider, offset, limit })
    if (total_count !== expected.length) return false
    listed.push(...credentials)
    if (credentials.length < limit) break
  }
  return JSON.stringify(listed.map((one) => encode(one))) === JSON.stringify(expected.map((one) => encode(one)))
})

const listing = (it: Vitest.MethodsNonLive<StoredPorts>) => {
  it.effect.prop(
    "pages of any limit partition the credentials of a workspace in one order, and each counts them all (L4)",
    [places],
    ([given]) => Effect.map(partitions(given), (isRight) => assert.isTrue(isRight)),
    { arbitrary: { runs: 25 } }
  )

  const wrong: ReadonlyArray<readonly [string, (list: Listing, ...given: Parameters<Listing>) => ReturnType<Listing>]> =
    [
      [
        "counts the page instead of all",
        (list, ...given) =>
          Effect.map(list(...given), ({ credentials }) => ({ credentials, total_count: credentials.length }))
      ],
      [
        "ignores the offset",
        (list, account_id, page) => list(account_id, { ...page, offset: 0, limit: page.limit - 1 })
      ],
      ["ignores the provider", (list, account_id, page) => list(account_id, { ...page, provider: undefined })],
      [
        "orders by id alone",
        (list, ...given) =>
          Effect.map(list(...given), ({ credentials, total_count }) => ({
            credentials: credentials.toSorted((one, other) => (one.id < other.id ? -1 : 1)),
            total_count
          }))
      ]
    ]
  type Listing = CredentialRepository["Service"]["list"]
  it.effect.each(wrong)("a list that %s would be found (L4, control)", ([, change]) =>
    Effect.gen(function* () {
      const repository = yield* CredentialRepository
      const broken = {
        ...repository,
        list: (...given: Parameters<Listing>) => change(repository.list, ...given)
      }
      const seen = yield* Effect.forEach([2, 5], (limit) => {
        // The ids are in another order than the times.
        const given = [3, 2, 1, 0, 1].map((millis, index) => ({
          id: CredentialId.make(`${index}${randomUUID().slice(1)}`),
          workspace: 0 as const,
          created_at: DateTime.makeUnsafe(millis),
          provider: index === 0 ? ("cohere" as const) : ("openai" as const)
        }))
        return Effect.provideService(partitions({ given, limit, provider: "openai" }), CredentialRepository, broken)
      })
      assert.include(seen, false)
    })
  )

  it.effect(
    "a list does not cross accounts, even for a workspace that is known, nor shows what is deleted (T6, L11)",
    () =>
      Effect.gen(function* () {
        const { list } = yield* CredentialRepository
        const [owner, stranger] = [yield* newTenant, yield* newTenant]
        yield* stored(owner.account_id, owner.workspace_id)
        const page = { workspace_id: owner.workspace_id, provider: undefined, offset: 0, limit: 100 }
        assert.deepStrictEqual(yield* list(stranger.account_id, page), { credentials: [], total_count: 0 })
        const { credentials, total_count } = yield* list(owner.account_id, page)
        assert.strictEqual(total_count, 1)
        for (const { id } of credentials) yield* (yield* CredentialRepository).delete(owner.account_id, id)
        assert.deepStrictEqual(yield* list(owner.account_id, page), { credentials: [], total_count: 0 })
      })
  )
}

const contract = (it: Vitest.MethodsNonLive<Ports>) => {
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
        const other = { created_at: DateTime.makeUnsafe(1), provider: "cohere", sort_order: 7 } as const
        const given = { credential: { ...credential, ...other }, revision: 1, sealed, key_version: 2 }
        assert.isTrue(yield* update(account_id, { ...given, fields: ["key", "name"] }))
        assert.deepStrictEqual(Option.getOrThrow(yield* found(account_id, id)), {
          credential: encode(credential),
          sealed: hex(sealed),
          revision: 2,
          key_version: 2,
          workspace_deleted: false,
          leaked: false
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
      const made = yield* records.insert(account_id, plainCredential(workspace_id), plainSealedKey(), record)
      const { id } = Option.getOrThrow(made)
      assert.isTrue(yield* repository.delete(account_id, id))
      for (let n = 0; n < 2; n++) {
        assert.isFalse(yield* repository.delete(account_id, id))
        assert.isTrue(Option.isNone(yield* repository.findById(account_id, id)))
        assert.isTrue(Option.isNone(yield* repository.findSealed(account_id, id)))
      }
      assert.strictEqual(Option.getOrThrow(yield* records.find(account_id, key_hash)).credential_id, id)
      const again = yield* records.insert(account_id, plainCredential(workspace_id), plainSealedKey(), record)
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

  /** What another account has done to a credential when it was asked to change and delete it. */
  const touchedByStranger = Effect.gen(function* () {
    const { delete: remove, update } = yield* CredentialRepository
    const [owner, stranger] = [yield* newTenant, yield* newTenant]
    const credential = yield* stored(owner.account_id, owner.workspace_id)
    const answers = [
      yield* update(stranger.account_id, renaming(credential, 1, "taken")),
      yield* remove(stranger.account_id, credential.id)
    ]
    const unknown = yield* remove(stranger.account_id, CredentialId.make(randomUUID()))
    const after = Option.getOrUndefined(yield* found(owner.account_id, credential.id))
    return { answers, unknown, name: after?.credential.name, revision: after?.revision }
  })
  const untouched = { answers: [false, false], unknown: false, name: null, revision: 1 }

  it.effect("another account can neither change nor delete a credential (T6)", () =>
    Effect.gen(function* () {
      assert.deepStrictEqual(yield* touchedByStranger, untouched)
    })
  )

  it.effect("a repository that forgets the account would be found (T6, control)", () =>
    Effect.gen(function* () {
      const repository = yield* CredentialRepository
      const owners = new Map<CredentialId, AccountId>()
      const insert: typeof repository.insert = (account_id, credential, sealed) => {
        owners.set(credential.id, account_id)
        return repository.insert(account_id, credential, sealed)
      }
      const ownerOf = (account_id: AccountId, id: CredentialId) => owners.get(id) ?? account_id
      const update: typeof repository.update = (account_id, given) =>
        repository.update(ownerOf(account_id, given.credential.id), given)
      const remove: typeof repository.delete = (account_id, id) => repository.delete(ownerOf(account_id, id), id)
      for (const broken of [
        { ...repository, insert, update },
        { ...repository, insert, delete: remove }
      ]) {
        const touched = yield* Effect.provideService(touchedByStranger, CredentialRepository, broken)
        assert.notDeepEqual(touched, untouched)
      }
    })
  )
}

for (const [name, store] of databases) layerLive(store)(`a credential repository ${name}: list`, listing)

for (const [name, store] of stores) layerLive(store)(`a credential repository ${name}: update, delete`, contract)
