import { DateTime, Effect, Option } from "effect"
import { WorkspaceId } from "../../../src/domain/Identifiers.ts"
import { type CredentialUpdate, PoolFull, PoolLimits, WorkspaceGone } from "../../../src/port/CredentialRepository.ts"
import { account_id, openLossyStore, uuid, workspace_id } from "../../support/database/lossyStore.ts"
import { plainCredential, plainSealedKey } from "../../support/database/plainCredential.ts"
import { assert, describe, it } from "../../support/it.ts"

const limits = { credentials: 3, bytes: 300 }
const sealed = plainSealedKey(1)
const keyBytes = sealed.sealed.length

/** A list that fills a pool together with the given number of sealed keys; or a byte more. */
const filling = (keys: number, more = 0) => ["m".repeat(limits.bytes - keys * keyBytes + more)]

const full = {
  bytes: new PoolFull({ unit: "bytes", limit: limits.bytes }),
  credentials: new PoolFull({ unit: "credentials", limit: limits.credentials })
}

describe("the limits of a pool (D52)", () => {
  const open = Effect.gen(function* () {
    const { admin, repository } = yield* Effect.provideService(openLossyStore, PoolLimits, limits)
    const insert = (n: number, provider: string, allowed_models: ReadonlyArray<string> | null = null, once = false) => {
      const record = { key_hash: new Uint8Array(32).fill(n), fingerprint: new Uint8Array(32) }
      const row = { ...plainCredential(workspace_id, uuid(n)), provider, allowed_models }
      return repository.insert(account_id, row, sealed, once ? record : undefined)
    }
    const update = (n: number, allowed_models: ReadonlyArray<string>, given: Partial<CredentialUpdate> = {}) =>
      repository.update(account_id, {
        credential: {
          ...plainCredential(workspace_id, uuid(n)),
          allowed_models,
          created_at: DateTime.makeUnsafe(0),
          sort_order: 0
        },
        revision: 1,
        sealed: undefined,
        key_version: 1,
        fields: ["allowed_models"],
        ...given
      })
    return { admin, insert, repository, update }
  })

  it.live.each([
    ["without", false],
    ["with", true]
  ] as const)("refuse a create %s an idempotency key if it exceeds one of them", function* ([, once]) {
    const { admin, insert, repository } = yield* open
    const create = (n: number, provider: string, models?: ReadonlyArray<string>) => insert(n, provider, models, once)
    assert.deepStrictEqual(yield* Effect.flip(create(11, "openai", filling(1, 1))), full.bytes)
    assert.isTrue(Option.isSome(yield* create(11, "openai", filling(1))))
    assert.deepStrictEqual(yield* Effect.flip(create(12, "openai")), full.bytes)
    yield* create(13, "xai")
    assert.deepStrictEqual(yield* Effect.flip(create(14, "xai", filling(2, 1))), full.bytes)
    assert.isTrue(Option.isSome(yield* create(14, "xai", filling(2))))
    for (const n of [15, 16, 17]) yield* create(n, "azure")
    assert.deepStrictEqual(yield* Effect.flip(create(18, "azure")), full.credentials)
    const unknown = repository.insert(account_id, plainCredential(WorkspaceId.make(uuid(9))), sealed)
    assert.deepStrictEqual(yield* Effect.flip(unknown), new WorkspaceGone())
    yield* admin`UPDATE workspaces SET deleted_at = now()`
    assert.deepStrictEqual(yield* Effect.flip(create(19, "cohere")), new WorkspaceGone())
    const found = yield* admin`SELECT right(id::text, 2)::int AS n FROM credentials ORDER BY id`
    assert.deepStrictEqual(
      found.map(({ n }) => n),
      [11, 13, 14, 15, 16, 17]
    )
  })

  it.live("refuse an update that exceeds the limit in bytes, with a new key or without", function* () {
    const { admin, insert, update } = yield* open
    const rotated = { sealed, key_version: 2, fields: ["key", "allowed_models"] } as const
    for (const n of [11, 12]) yield* insert(n, "openai")
    assert.deepStrictEqual(yield* Effect.flip(update(11, filling(2, 1))), full.bytes)
    assert.deepStrictEqual(yield* Effect.flip(update(11, filling(2, 1), rotated)), full.bytes)
    for (const given of [{}, rotated]) {
      assert.isFalse(yield* update(11, filling(2), { ...given, revision: 2 }), "there is room, but no such revision")
    }
    assert.isTrue(yield* update(11, filling(2), rotated))
    assert.isFalse(yield* update(13, filling(2)), "a credential that does not exist")
    const elsewhere = { ...plainCredential(WorkspaceId.make(uuid(9)), uuid(13)), created_at: DateTime.makeUnsafe(0) }
    assert.isFalse(yield* update(13, [], { credential: { ...elsewhere, sort_order: 0 } }), "in an unknown workspace")
    const [{ bytes } = { bytes: 0 }] = yield* admin<{ bytes: number }>`SELECT bytes::int AS bytes FROM pools`
    assert.strictEqual(bytes, limits.bytes)
  })
})
