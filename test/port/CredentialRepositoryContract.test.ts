import { randomBytes, randomUUID } from "node:crypto"
import { Arbitrary, Effect, Option, Schema } from "effect"
import { Credential } from "../../src/domain/Credential.ts"
import { type AccountId, CredentialId, type WorkspaceId } from "../../src/domain/Identifiers.ts"
import type { SealedKey } from "../../src/domain/SealedKey.ts"
import { CredentialRepository } from "../../src/port/CredentialRepository.ts"
import { IdempotencyRecords } from "../../src/port/IdempotencyRecords.ts"
import { insertPlain, plainCredential, plainSealedKey } from "../support/database/plainCredential.ts"
import { assert, type It, layerLive } from "../support/it.ts"
import { sealedKey, storedCredential } from "../support/memory/arbitraries.ts"
import { newTenant } from "../support/database/newTenant.ts"
import { type Ports, database } from "../support/database/stores.ts"

const encode = Schema.encodeSync(Credential)
const hex = ({ kek_id, sealed, wrapped_dek }: SealedKey) =>
  [kek_id, ...[wrapped_dek, sealed].map((bytes) => Buffer.from(bytes).toString("hex"))].join()

const stored = (account_id: AccountId, workspace_id: WorkspaceId) =>
  insertPlain(account_id, plainCredential(workspace_id), plainSealedKey(1))

type Stored = typeof storedCredential extends Arbitrary.Arbitrary<infer A> ? A : never
/** Shrinking repeats what was generated, and an id is taken only once. */
const fresh = (credential: Stored, workspace_id: WorkspaceId) => ({
  ...credential,
  workspace_id,
  id: CredentialId.make(randomUUID())
})

/** Concurrent calls; test/port/StoresContract.test.ts has sequential ones. */
const contract = (it: It<Ports>) => {
  it.effect.prop(
    "stores concurrent inserts of two accounts byte for byte, each in its account only (D32, T6)",
    [Arbitrary.array(Arbitrary.all([storedCredential, sealedKey]), { minLength: 2, maxLength: 12 })],
    function* ([given]) {
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
    },
    { arbitrary: { runs: 40 } }
  )

  it.effect("stores one of twenty concurrent inserts with the same idempotency key, and says which", function* () {
    const { findById, insert } = yield* CredentialRepository
    const { account_id, workspace_id } = yield* newTenant
    const record = { key_hash: randomBytes(32), fingerprint: randomBytes(32) }
    const rows = Array.from({ length: 20 }, () => plainCredential(workspace_id))
    const inserted = yield* Effect.forEach(rows, (row) => insert(account_id, row, plainSealedKey(), record), {
      concurrency: "unbounded"
    })
    const found = yield* Effect.forEach(rows, ({ id }) => findById(account_id, id))
    assert.lengthOf(found.filter(Option.isSome), 1)
    assert.deepStrictEqual(found, inserted)
    const [stored] = found.flatMap(Option.toArray)
    const recorded = yield* (yield* IdempotencyRecords).find(account_id, record.key_hash)
    assert.strictEqual(Option.getOrThrow(recorded).credential_id, stored?.id)
  })

  it.effect("reports success to exactly one of several concurrent deletions of a credential (L11)", function* () {
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
}

layerLive(database)("the repository of credentials on PostgreSQL", contract)
