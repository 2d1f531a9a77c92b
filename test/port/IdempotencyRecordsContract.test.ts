import { randomBytes } from "node:crypto"
import { assert, type Vitest } from "@effect/vitest"
import { Cause, DateTime, Duration, Effect, Exit, Option } from "effect"
import type { AccountId, WorkspaceId } from "../../src/domain/Identifiers.ts"
import { AccountRepository } from "../../src/port/AccountRepository.ts"
import { CredentialRepository, WorkspaceGone } from "../../src/port/CredentialRepository.ts"
import { type IdempotencyRecord, IdempotencyRecords } from "../../src/port/IdempotencyRecords.ts"
import { eventually } from "../support/process/eventually.ts"
import { layerLive } from "../support/process/layerLive.ts"
import { insertPlain, plainCredential, plainSealedKey } from "../support/database/plainCredential.ts"
import { addWorkspace, newTenant, newWorkspaceId } from "../support/database/newTenant.ts"
import { databases, type Ports, stores } from "../support/database/stores.ts"

interface Tenant {
  readonly account_id: AccountId
  readonly workspace_id: WorkspaceId
}

const newRecord = (): IdempotencyRecord => ({ key_hash: randomBytes(32), fingerprint: randomBytes(32) })

/** A credential with its sealed key, to be stored for a tenant. */
const newRow = ({ workspace_id }: Tenant) => ({
  credential: plainCredential(workspace_id),
  sealed: { ...plainSealedKey(), wrapped_dek: randomBytes(60) }
})
type Row = ReturnType<typeof newRow>

const insert = Effect.fnUntraced(function* (
  { account_id }: Tenant,
  { credential, sealed }: Row,
  record: IdempotencyRecord
) {
  return yield* (yield* CredentialRepository).insert(account_id, credential, sealed, record)
})

const isStored = Effect.fnUntraced(function* ({ account_id }: Tenant, { credential }: Row) {
  return Option.isSome(yield* (yield* CredentialRepository).findById(account_id, credential.id))
})

/** The idempotency record of an account under a hash, with bytes that can be compared. */
const found = Effect.fnUntraced(function* ({ account_id }: Tenant, { key_hash }: IdempotencyRecord) {
  const record = yield* (yield* IdempotencyRecords).find(account_id, key_hash)
  return Option.map(record, ({ credential_id, fingerprint }) => ({
    credential_id,
    fingerprint: Buffer.from(fingerprint).toString("hex")
  }))
})

const asFound = ({ credential }: Row, { fingerprint }: IdempotencyRecord) =>
  Option.some({ credential_id: credential.id, fingerprint: Buffer.from(fingerprint).toString("hex") })

/** Whether a stranger finds a tenant's idempotency record, or cannot store one under the same hash because of it. */
const crosses = Effect.gen(function* () {
  const [owner, stranger] = [yield* newTenant, yield* newTenant]
  const [one, other] = [newRow(owner), newRow(stranger)]
  const record = newRecord()
  yield* insert(owner, one, record)
  const seen = Option.isSome(yield* found(stranger, record))
  return seen || Option.isNone(yield* insert(stranger, other, record))
})

const forgetting = (it: Vitest.MethodsNonLive<Ports>) => {
  it.effect("old idempotency records are deleted in batches, and their credentials stay", () =>
    Effect.gen(function* () {
      const { forget } = yield* IdempotencyRecords
      const tenant = yield* newTenant
      const kept = Array.from({ length: 5 }, () => ({ row: newRow(tenant), record: newRecord() }))
      yield* Effect.forEach(kept, ({ record, row }) => insert(tenant, row, record))
      const left = Effect.filter(kept, ({ record }) => Effect.map(found(tenant, record), Option.isSome))
      assert.strictEqual(yield* forget(Duration.hours(1), 10), 0)
      let forgotten = 0
      yield* eventually(
        "all are old enough, and gone",
        Effect.gen(function* () {
          const count = yield* forget(Duration.zero, 2)
          assert.isAtMost(count, 2)
          forgotten += count
          return (yield* left).length === 0
        })
      )
      // Those of other tests count too.
      assert.isAtLeast(forgotten, kept.length)
      for (const { row } of kept) assert.isTrue(yield* isStored(tenant, row))
    })
  )
}

const contract = (it: Vitest.MethodsNonLive<Ports>) => {
  it.effect("a credential, its sealed key and its idempotency record are found as given, and not before", () =>
    Effect.gen(function* () {
      const tenant = yield* newTenant
      const [row, record] = [newRow(tenant), newRecord()]
      assert.isTrue(Option.isNone(yield* found(tenant, record)))
      assert.isFalse(yield* isStored(tenant, row))
      const inserted = Option.getOrThrow(yield* insert(tenant, row, record))
      assert.deepStrictEqual(yield* found(tenant, record), asFound(row, record))
      const { findSealed } = yield* CredentialRepository
      const { credential, sealed } = Option.getOrThrow(yield* findSealed(tenant.account_id, row.credential.id))
      assert.deepEqual(credential, inserted)
      assert.deepEqual(credential, { ...row.credential, created_at: inserted.created_at, sort_order: 0 })
      assert.strictEqual(sealed.kek_id, row.sealed.kek_id)
      for (const part of ["wrapped_dek", "sealed"] as const) {
        assert.deepStrictEqual(Buffer.from(sealed[part]), Buffer.from(row.sealed[part]))
      }
    })
  )

  it.effect("credentials with and without an idempotency record share one order (D32)", () =>
    Effect.gen(function* () {
      const tenant = yield* newTenant
      const plain = Effect.fnUntraced(function* ({ credential, sealed }: Row) {
        return (yield* insertPlain(tenant.account_id, credential, sealed)).sort_order
      })
      const recorded = (row: Row) =>
        Effect.map(insert(tenant, row, newRecord()), (created) => Option.getOrThrow(created).sort_order)
      const orders: Array<number> = []
      for (const store of [plain, recorded, recorded, plain]) orders.push(yield* store(newRow(tenant)))
      assert.deepStrictEqual(orders, [0, 1, 2, 3])
    })
  )

  it.effect("a credential that cannot be stored leaves no idempotency record (F12)", () =>
    Effect.gen(function* () {
      const tenant = yield* newTenant
      const gone = { ...tenant, workspace_id: yield* addWorkspace(tenant.account_id) }
      yield* (yield* AccountRepository).deleteWorkspace(gone.workspace_id, yield* DateTime.now)
      const taken = newRow(tenant)
      yield* insert(tenant, taken, newRecord())
      for (const row of [taken, newRow(gone), newRow({ ...tenant, workspace_id: yield* newWorkspaceId })]) {
        const record = newRecord()
        const exit = yield* Effect.exit(insert(tenant, row, record))
        assert.isTrue(row === taken || (Exit.isFailure(exit) && Cause.squash(exit.cause) instanceof WorkspaceGone))
        assert.isTrue(Option.isNone(yield* found(tenant, record)))
        assert.strictEqual(yield* isStored(tenant, row), row === taken)
      }
    })
  )

  it.effect("one of twenty concurrent inserts under one hash is stored, and the others say so", () =>
    Effect.gen(function* () {
      const tenant = yield* newTenant
      const record = newRecord()
      const rows = Array.from({ length: 20 }, () => newRow(tenant))
      const inserted = yield* Effect.forEach(rows, (row) => insert(tenant, row, record), { concurrency: "unbounded" })
      assert.lengthOf(inserted.filter(Option.isSome), 1)
      const stored = yield* Effect.filter(rows, (row) => isStored(tenant, row))
      assert.deepStrictEqual(
        stored.map(({ credential }) => credential.id),
        inserted.flatMap((one) => (Option.isSome(one) ? [one.value.id] : []))
      )
      for (const row of stored) assert.deepStrictEqual(yield* found(tenant, record), asFound(row, record))
    })
  )

  it.effect("a hash means nothing to another account (T6)", () =>
    Effect.gen(function* () {
      assert.isFalse(yield* crosses)
    })
  )

  it.effect.each(["find", "insert"])("a store whose %s forgets the account would be found (T6, control)", (forgetful) =>
    Effect.gen(function* () {
      const records = yield* IdempotencyRecords
      const repository = yield* CredentialRepository
      const owners = new Map<string, AccountId>()
      const keyOf = (key_hash: Uint8Array) => Buffer.from(key_hash).toString("hex")
      const ownerOf = (account_id: AccountId, key_hash: Uint8Array) => owners.get(keyOf(key_hash)) ?? account_id
      const storing: typeof repository.insert = (account_id, credential, sealed, record = newRecord()) => {
        const owner = ownerOf(account_id, record.key_hash)
        if (forgetful === "insert" && owner !== account_id) return Effect.succeedNone
        owners.set(keyOf(record.key_hash), account_id)
        return repository.insert(account_id, credential, sealed, record)
      }
      const finding: typeof records.find = (account_id, key_hash) =>
        records.find(forgetful === "find" ? ownerOf(account_id, key_hash) : account_id, key_hash)
      const found = crosses.pipe(
        Effect.provideService(CredentialRepository, { ...repository, insert: storing }),
        Effect.provideService(IdempotencyRecords, { ...records, find: finding })
      )
      assert.isTrue(yield* found)
    })
  )
}

for (const [name, store] of databases) layerLive(store)(`old idempotency records ${name} (F8)`, forgetting)

for (const [name, store] of stores) {
  layerLive(store)(`a store of idempotency records ${name} (SECURITY.md, Idempotency records)`, contract)
}
