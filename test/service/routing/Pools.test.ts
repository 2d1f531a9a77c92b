import { assert, describe, it } from "@effect/vitest"
import { Cause, type Context, DateTime, Deferred, Duration, Effect, Fiber, Layer, Option } from "effect"
import type { SqlClient } from "effect/sql"
import { AccountId, WorkspaceId } from "../../../src/domain/Identifiers.ts"
import type { Provider } from "../../../src/domain/Provider.ts"
import { planFor } from "../../../src/domain/routing/planFor.ts"
import type { SealingContext } from "../../../src/domain/SealedKey.ts"
import { Cipher, KeyStoreUnavailable, UnknownKeyId, UnsupportedFormat } from "../../../src/port/Cipher.ts"
import { CredentialPools, type PoolOwner } from "../../../src/port/CredentialPools.ts"
import { DatabaseFailure } from "../../../src/port/DatabaseFailure.ts"
import { withDeadline } from "../../../src/port/Deadline.ts"
import * as CredentialsLive from "../../../src/service/credentials/Credentials.ts"
import { Pools } from "../../../src/service/routing/Pools.ts"
import * as SecureRandomLive from "../../../src/crypto/SecureRandomLive.ts"
import { addWorkspace, newTenant } from "../../support/database/newTenant.ts"
import { plainCredential, plainSealedKey } from "../../support/database/plainCredential.ts"
import { openStore, type Ports } from "../../support/database/stores.ts"
import * as CipherPlain from "../../support/keys/CipherPlain.ts"
import { ringOf } from "../../support/keys/keyrings.ts"
import { cipherOn, inMemory } from "../../support/memory/inMemory.ts"
import { changing, create } from "../../support/service/asTenant.ts"
import { requestOf } from "../../support/service/planning.ts"
import { stopMonotonicClock } from "../../support/process/stopMonotonicClock.ts"

const cipher = cipherOn(ringOf("kek"))

const snapshotOf = Effect.fnUntraced(function* (owner: PoolOwner, freshness?: number, provider: Provider = "azure") {
  const [snapshot] = yield* (yield* Pools).current(owner, [provider], freshness)
  return snapshot ?? assert.fail("no snapshot")
})

const sealsIn = (owner: PoolOwner) => Effect.map(snapshotOf(owner), ({ pool }) => pool.map(({ seal }) => seal))

/** The plan of a plain request: how many own steps it has, and whether it has a shared one. */
const planned = (owner: PoolOwner, freshness?: number, provider: Provider = "azure") =>
  Effect.map(snapshotOf(owner, freshness, provider), ({ pool }) => {
    const request = requestOf(owner, { targets: [{ provider }] })
    const { steps } = planFor(
      request,
      () => pool,
      () => ({ _tag: "Free" })
    )
    return {
      own: steps.filter(({ _tag }) => _tag === "Own").length,
      shared: steps.some(({ _tag }) => _tag === "Shared")
    }
  })

/** Single edits of every column that the seal binds and that leave the row in its pool, each to another value. */
const edits: ReadonlyArray<readonly [column: string, value: string]> = [
  ["id", "gen_random_uuid()"],
  ["disabled", "NOT disabled"],
  ["is_fallback", "NOT is_fallback"],
  ["is_required", "NOT is_required"],
  ["is_byok_only", "NOT is_byok_only"],
  ["allowed_api_key_hashes", "ARRAY[repeat('a', 64)]"],
  ["allowed_models", "ARRAY['a/model']"],
  ["allowed_models", "ARRAY[]::text[]"],
  ["allowed_user_ids", "ARRAY['ann']"],
  ["declared_region", "'global'"],
  ["declared_zdr", "true"]
]

/** The two services of one instance, on a store with a cipher. */
const instance = (store: Context.Context<Ports>, sealing: Layer.Layer<Cipher> = cipher) =>
  Layer.fresh(
    Layer.mergeAll(CredentialsLive.layer, Pools.layer).pipe(
      Layer.provideMerge(sealing),
      Layer.provide(SecureRandomLive.layer),
      Layer.provideMerge(Layer.succeedContext(store))
    )
  )

/** What the pool of a provider holds: seals and the steps of a plan. */
const described = Effect.fnUntraced(function* (owner: PoolOwner, provider: Provider = "azure") {
  const { pool } = yield* snapshotOf(owner, undefined, provider)
  const { own, shared } = yield* planned(owner, undefined, provider)
  return `${pool.map(({ seal }) => seal).join() || "empty"}, ${own} own, ${shared ? "shared" : "not shared"}`
})

/** What a plan is after each edit, made and taken back by direct SQL. */
const afterEdits = Effect.fnUntraced(function* (sql: SqlClient.SqlClient, owner: PoolOwner) {
  const found: Array<string> = []
  for (const [column, value] of edits) {
    const isId = column === "id"
    const [before] = yield* sql<{ old: string }>`SELECT id AS old FROM credentials`
    if (isId) yield* sql.unsafe("UPDATE credentials SET id = gen_random_uuid()")
    else {
      yield* sql.unsafe(`CREATE TABLE kept AS SELECT * FROM credentials`)
      yield* sql.unsafe(`UPDATE credentials SET ${column} = ${value}`)
    }
    found.push(`${column} = ${value}: ${yield* described(owner)}`)
    if (isId) yield* sql`UPDATE credentials SET id = ${before?.old ?? ""}`
    else {
      yield* sql.unsafe(`UPDATE credentials SET ${column} = kept.${column} FROM kept`)
      yield* sql.unsafe("DROP TABLE kept")
    }
    assert.deepStrictEqual(yield* planned(owner), { own: 1, shared: true }, "as it was")
  }
  return found
})

/** Columns whose edit takes the row to another pool. */
const moves = ["workspace_id", "provider", "account_id"] as const

/** What the pool that a row leaves and the one that it comes to hold, for each edit that moves it. */
const afterMoves = Effect.fnUntraced(function* (sql: SqlClient.SqlClient, owner: PoolOwner) {
  const { account_id, workspace_id } = owner
  const stranger = { account_id: (yield* newTenant).account_id, workspace_id }
  // Ids are unique within an account only.
  yield* sql`
    INSERT INTO workspaces (id, account_id, name, is_default, created_at)
    VALUES (${workspace_id}, ${stranger.account_id}, 'same id', false, now())`
  const other = { account_id, workspace_id: yield* addWorkspace(account_id) }
  const found: Array<string> = []
  const pools = { workspace_id: other, provider: owner, account_id: stranger }
  for (const column of moves) {
    const provider = column === "provider" ? "xai" : "azure"
    const [before, after] = [
      { ...owner, provider: "azure" },
      { ...pools[column], provider }
    ]
    yield* sql`
      INSERT INTO pools (account_id, workspace_id, provider)
      VALUES (${after.account_id}, ${after.workspace_id}, ${after.provider})`
    yield* sql`UPDATE credentials SET ${sql(column)} = ${after[column]}`
    found.push(`${column}: ${yield* described(owner)}, then ${yield* described(pools[column], provider)}`)
    yield* sql`UPDATE credentials SET ${sql(column)} = ${before[column]}`
    assert.deepStrictEqual(yield* planned(owner), { own: 1, shared: true }, "as it was")
  }
  return found
})

/** Every column that the seal binds: this is a type error if one is added and edited nowhere. */
const bound: Record<keyof SealingContext, true> = {
  account_id: true,
  workspace_id: true,
  id: true,
  provider: true,
  disabled: true,
  is_fallback: true,
  is_required: true,
  is_byok_only: true,
  allowed_api_key_hashes: true,
  allowed_models: true,
  allowed_user_ids: true,
  declared_region: true,
  declared_zdr: true
}

describe("pools", () => {
  it.live(
    "exclude a row with any bound column edited, in its pool or the one it moved to, and remove shared capacity there (Q20, E16)",
    () =>
      Effect.gen(function* () {
        const { ports, sql } = yield* openStore()
        yield* Effect.gen(function* () {
          const owner = yield* newTenant
          yield* create(owner)
          assert.deepStrictEqual(yield* planned(owner), { own: 1, shared: true })
          assert.deepStrictEqual(
            yield* afterEdits(sql, owner),
            edits.map(([column, value]) => `${column} = ${value}: altered, 0 own, not shared`)
          )
          assert.deepStrictEqual(
            yield* afterMoves(sql, owner),
            moves.map((column) => `${column}: empty, 0 own, shared, then altered, 0 own, not shared`)
          )
          assert.sameMembers(Object.keys(bound), [...new Set([...edits.map(([column]) => column), ...moves])])
        }).pipe(Effect.provide(instance(ports)))
      })
  )

  it.live("do not notice with a cipher that binds nothing (Q20, control)", () =>
    Effect.gen(function* () {
      const { ports, sql } = yield* openStore()
      yield* Effect.gen(function* () {
        const owner = yield* newTenant
        yield* create(owner)
        const found = [...(yield* afterEdits(sql, owner)), ...(yield* afterMoves(sql, owner))]
        assert.lengthOf(found, edits.length + moves.length)
        assert.lengthOf(
          found.filter((line) => line.includes("altered")),
          0
        )
      }).pipe(Effect.provide(instance(ports, CipherPlain.layer)))
    })
  )

  it.effect.each([
    ["unknown_key", new UnknownKeyId({ kek_id: "gone" })],
    ["unsupported", new UnsupportedFormat()],
    ["unavailable", new KeyStoreUnavailable({ reason: "down" })]
  ] as const)("say why a row is not verified: %s (E16, E17)", ([seal, failure]) =>
    Effect.gen(function* () {
      const owner = yield* newTenant
      yield* create(owner)
      const broken = changing(Cipher, (cipher) => ({ ...cipher, prepare: () => failure }))
      const found = yield* Effect.provide(sealsIn(owner), Layer.fresh(Layer.provide(Pools.layer, broken)))
      assert.deepStrictEqual(found, [seal])
      const unproved = yield* Effect.provide(sealsIn(owner), Layer.fresh(Pools.layerUnverified))
      assert.deepStrictEqual(unproved, ["unverified"])
    }).pipe(Effect.provide(inMemory()))
  )

  it.live("read a pool again after a second if a row is not verified, and not otherwise (E17)", () =>
    Effect.gen(function* () {
      const owner = yield* newTenant
      yield* create(owner)
      let down = true
      let asked = 0
      const flaky = changing(Cipher, (cipher) => ({
        ...cipher,
        prepare: (...args) =>
          Effect.suspend(() => {
            asked += 1
            return down ? new KeyStoreUnavailable({ reason: "down" }) : cipher.prepare(...args)
          })
      }))
      yield* Effect.gen(function* () {
        const advance = yield* stopMonotonicClock
        assert.deepStrictEqual(yield* sealsIn(owner), ["unavailable"])
        down = false
        assert.deepStrictEqual(yield* sealsIn(owner), ["unavailable"])
        advance(1001)
        assert.deepStrictEqual(yield* sealsIn(owner), ["verified"])
        advance(1001)
        assert.deepStrictEqual(yield* sealsIn(owner), ["verified"])
        assert.strictEqual(asked, 2)
      }).pipe(Effect.scoped, Effect.provide(Layer.fresh(Layer.provide(Pools.layer, flaky))))
    }).pipe(Effect.provide(inMemory()))
  )

  it.live("ask a key store that hangs once, not with every plan: the second counts from when it gave up (E17)", () =>
    Effect.gen(function* () {
      const owner = yield* newTenant
      yield* create(owner)
      const advance = yield* stopMonotonicClock
      let asked = 0
      const hanging = changing(Cipher, (cipher) => ({
        ...cipher,
        prepare: () =>
          Effect.suspend(() => {
            asked += 1
            advance(2500)
            return new KeyStoreUnavailable({ reason: "it does not answer in time" })
          })
      }))
      yield* Effect.gen(function* () {
        for (const _ of ["first", "second"]) assert.deepStrictEqual(yield* sealsIn(owner), ["unavailable"])
        assert.strictEqual(asked, 1)
        advance(1001)
        yield* sealsIn(owner)
        assert.strictEqual(asked, 2)
      }).pipe(Effect.provide(Layer.fresh(Layer.provide(Pools.layer, hanging))))
    }).pipe(Effect.scoped, Effect.provide(inMemory()))
  )

  it.live("are read once for all who ask at a time, and again for who asks after a change (Q19)", () =>
    Effect.gen(function* () {
      const owner = yield* newTenant
      yield* create(owner)
      const began = yield* Deferred.make<true>()
      const held = yield* Deferred.make<true>()
      let loads = 0
      const slow = changing(CredentialPools, (pools) => ({
        ...pools,
        load: (...args) =>
          Effect.gen(function* () {
            loads += 1
            const read = yield* pools.load(...args)
            yield* Deferred.succeed(began, true)
            yield* Deferred.await(held)
            return read
          })
      }))
      yield* Effect.gen(function* () {
        const early = yield* Effect.forEach([1, 2, 3], () => Effect.forkChild(snapshotOf(owner)))
        yield* Deferred.await(began)
        yield* create(owner)
        const late = yield* Effect.forkChild(snapshotOf(owner))
        yield* Effect.yieldNow
        assert.strictEqual(loads, 1)
        yield* Deferred.succeed(held, true)
        yield* Effect.forEach(early, Fiber.join)
        assert.lengthOf((yield* Fiber.join(late)).pool, 2)
        assert.strictEqual(loads, 2)
      }).pipe(Effect.provide(Layer.fresh(Layer.provide(Pools.layer, slow))))
    }).pipe(Effect.provide(inMemory()))
  )
})

describe("what a process keeps of pools", () => {
  const owners = Array.from({ length: 40 }, (_, n) => ({
    account_id: AccountId.make("00000000-0000-7000-8000-00000000000a"),
    workspace_id: WorkspaceId.make(`00000000-0000-7000-8000-${String(n).padStart(12, "0")}`)
  }))
  const model = "m".repeat(2 ** 20)

  /** Pools of one credential with a long list, whose reading is counted and waits for `reading`. */
  const longLists = (read: Array<string>, reading: Effect.Effect<unknown> = Effect.void) =>
    Layer.provide(
      Pools.layerUnverified,
      Layer.succeed(CredentialPools, {
        versions: () => Effect.succeedSome(["1"]),
        load: ({ workspace_id }) =>
          Effect.as(
            Effect.andThen(
              Effect.sync(() => read.push(workspace_id)),
              reading
            ),
            Option.some({
              version: "1",
              rows: [
                {
                  credential: {
                    ...plainCredential(workspace_id, workspace_id),
                    allowed_models: [model],
                    created_at: DateTime.makeUnsafe(0),
                    sort_order: 0
                  },
                  sealed: plainSealedKey(1),
                  key_version: 1,
                  row: "1",
                  parkings: []
                }
              ]
            })
          )
      })
    )

  it.effect("is bounded by weight: the pools that were used last stay (R4)", () => {
    const read: Array<string> = []
    return Effect.gen(function* () {
      for (const owner of owners) yield* snapshotOf(owner)
      assert.lengthOf(read, 40)
      const [first = assert.fail(), last = assert.fail()] = [owners[0], owners[39]]
      yield* snapshotOf(last)
      assert.lengthOf(read, 40)
      yield* snapshotOf(first)
      assert.lengthOf(read, 41)
    }).pipe(Effect.provide(longLists(read)))
  })

  it.live("is not waited for beyond the deadline of a request, and is there for the next one", () => {
    const read: Array<string> = []
    return Effect.gen(function* () {
      const gate = yield* Deferred.make<true>()
      yield* Effect.gen(function* () {
        const [owner = assert.fail()] = owners
        const exit = yield* Effect.exit(withDeadline(Duration.millis(20))(snapshotOf(owner)))
        assert(exit._tag === "Failure")
        const failure = Cause.squash(exit.cause)
        assert.isTrue(failure instanceof DatabaseFailure && failure.kind === "Deadline")
        yield* Deferred.succeed(gate, true)
        yield* snapshotOf(owner)
        assert.lengthOf(read, 1)
      }).pipe(Effect.provide(longLists(read, Deferred.await(gate))))
    })
  })
})
