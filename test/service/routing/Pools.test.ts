import { Cause, type Context, Deferred, Duration, Effect, Fiber, Layer, Option, Result } from "effect"
import type { SqlClient } from "effect/sql"
import { TestClock } from "effect/testing"
import { SecureRandom } from "effect/crypto"
import { ServiceUnavailable } from "../../../src/domain/Errors.ts"
import { AccountId, WorkspaceId } from "../../../src/domain/Identifiers.ts"
import type { Provider } from "../../../src/domain/Provider.ts"
import { planFor } from "../../../src/domain/routing/planFor.ts"
import { longestFreshness } from "../../../src/domain/routing/RoutingRequest.ts"
import type { BoundCredential } from "../../../src/domain/SealedKey.ts"
import { Cipher, UnknownKeyId, UnsupportedFormat } from "../../../src/port/Cipher.ts"
import { CredentialPools, type PoolOwner } from "../../../src/port/CredentialPools.ts"
import { DatabaseFailure } from "../../../src/port/DatabaseFailure.ts"
import { withDeadline } from "../../../src/runtime/Deadline.ts"
import { makeMemoryBudget, MemoryBudget } from "../../../src/runtime/MemoryBudget.ts"
import { Parkings } from "../../../src/port/Parkings.ts"
import * as CredentialsLive from "../../../src/service/credentials/Credentials.ts"
import { Pools } from "../../../src/service/routing/Pools.ts"
import { ApiKeyMayNotRoute, UnknownApiKey, UnknownWorkspace } from "../../../src/service/routing/RouterErrors.ts"
import { addApiKey, addWorkspace, newHash, newTenant } from "../../support/database/newTenant.ts"
import { raisePools } from "../../support/database/raisePools.ts"
import { openStore, type Ports } from "../../support/database/stores.ts"
import * as CipherPlain from "../../support/keys/CipherPlain.ts"
import { ringOf } from "../../support/keys/keyrings.ts"
import { cipherOn, inMemory } from "../../support/memory/inMemory.ts"
import { Memory } from "../../support/memory/Memory.ts"
import { changing, create, update } from "../../support/service/asTenant.ts"
import { requestOf } from "../../support/service/planning.ts"
import { assert, describe, it } from "../../support/it.ts"
import { defaultSettings } from "../../support/service/defaultSettings.ts"

const cipher = cipherOn(ringOf("kek"))

const snapshotOf = Effect.fnUntraced(function* (owner: PoolOwner, freshness?: number, provider: Provider = "azure") {
  const {
    snapshots: [snapshot]
  } = yield* (yield* Pools).current(owner, [provider], freshness)
  return snapshot ?? assert.fail("no snapshot")
})

const sealsIn = (owner: PoolOwner) => Effect.map(snapshotOf(owner), ({ pool }) => pool.map(({ seal }) => seal))

/** The plan of a plain request: how many own steps it has, and whether it has a shared one. */
const planned = (owner: PoolOwner, freshness?: number, provider: Provider = "azure") =>
  Effect.map(snapshotOf(owner, freshness, provider), ({ pool }) => {
    const request = requestOf(owner, { targets: [{ provider }] })
    const { steps } = planFor({ request, poolOf: () => pool, availabilityOf: () => ({ _tag: "Free" }) })
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
      Layer.provide(SecureRandom.layerWebCrypto),
      Layer.provideMerge(defaultSettings),
      Layer.provideMerge(Layer.succeedContext(store))
    )
  )

/** The seals of a pool, and the steps of a plan. */
const described = Effect.fnUntraced(function* (owner: PoolOwner, provider: Provider = "azure") {
  const { pool } = yield* snapshotOf(owner, undefined, provider)
  const { own, shared } = yield* planned(owner, undefined, provider)
  return `${pool.map(({ seal }) => seal).join() || "empty"}, ${own} own, ${shared ? "shared" : "not shared"}`
})

/** The plan after each edit by SQL. */
const afterEdits = Effect.fnUntraced(function* (sql: SqlClient.SqlClient) {
  const found: Array<string> = []
  for (const [column, value] of edits) {
    const owner = yield* newTenant
    yield* create(owner)
    assert.deepStrictEqual(yield* planned(owner), { own: 1, shared: true }, "control")
    yield* sql.unsafe(`UPDATE credentials SET ${column} = ${value} WHERE account_id = '${owner.account_id}'`)
    yield* raisePools(sql)
    found.push(`${column} = ${value}: ${yield* described(owner)}`)
  }
  return found
})

/** Columns whose edit takes the row to another pool. */
const moves = ["workspace_id", "provider", "account_id"] as const

/** The old and the new pool of a row after each edit that moves it. */
const afterMoves = Effect.fnUntraced(function* (sql: SqlClient.SqlClient) {
  const found: Array<string> = []
  for (const column of moves) {
    const [owner, other] = [yield* newTenant, yield* newTenant]
    const { account_id, workspace_id } = owner
    yield* create(owner)
    // Ids are unique within an account only.
    yield* sql`
      INSERT INTO workspaces (id, account_id, name, is_default, created_at)
      VALUES (${workspace_id}, ${other.account_id}, 'same id', false, now())`
    const moved: Record<(typeof moves)[number], PoolOwner & { readonly provider: Provider }> = {
      workspace_id: { ...owner, workspace_id: yield* addWorkspace(account_id), provider: "azure" },
      provider: { ...owner, provider: "xai" },
      account_id: { ...owner, account_id: other.account_id, provider: "azure" }
    }
    const pool = moved[column]
    yield* sql`
      INSERT INTO pools (account_id, workspace_id, provider)
      VALUES (${pool.account_id}, ${pool.workspace_id}, ${pool.provider})`
    yield* sql`UPDATE credentials SET ${sql(column)} = ${pool[column]} WHERE account_id = ${account_id}`
    yield* raisePools(sql)
    found.push(`${column}: ${yield* described(owner)}, then ${yield* described(pool, pool.provider)}`)
  }
  return found
})

/** Every column that the seal binds: this is a type error if one is added and edited nowhere. */
const bound: Record<keyof BoundCredential, true> = {
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
    "exclude a row with an edited sealed column, and with it shared capacity, in any pool (Q20, E16)",
    function* () {
      const { ports, sql } = yield* openStore
      yield* Effect.gen(function* () {
        assert.deepStrictEqual(
          yield* afterEdits(sql),
          edits.map(([column, value]) => `${column} = ${value}: altered, 0 own, not shared`)
        )
        assert.deepStrictEqual(
          yield* afterMoves(sql),
          moves.map((column) => `${column}: empty, 0 own, shared, then altered, 0 own, not shared`)
        )
        assert.sameMembers(Object.keys(bound), [...new Set([...edits.map(([column]) => column), ...moves])])
      }).pipe(Effect.provide(instance(ports)))
    }
  )

  it.live("do not detect edited columns with a cipher without AAD (Q20, control)", function* () {
    const { ports, sql } = yield* openStore
    yield* Effect.gen(function* () {
      const found = [...(yield* afterEdits(sql)), ...(yield* afterMoves(sql))]
      assert.lengthOf(found, edits.length + moves.length)
      assert.lengthOf(
        found.filter((line) => line.includes("altered")),
        0
      )
    }).pipe(Effect.provide(instance(ports, CipherPlain.layer)))
  })

  it.effect.each([
    ["unknown_key", new UnknownKeyId({ kek_id: "gone" })],
    ["unsupported", new UnsupportedFormat()]
  ] as const)("mark a row that cannot be verified with the reason: %s (E16, E17)", ([seal, failure]) =>
    Effect.gen(function* () {
      const owner = yield* newTenant
      yield* create(owner)
      const broken = changing(Cipher, (cipher) => ({ ...cipher, verify: () => Result.fail(failure) }))
      const found = yield* Effect.provide(sealsIn(owner), Layer.fresh(Layer.provide(Pools.layer, broken)))
      assert.deepStrictEqual(found, [seal])
      const unproved = yield* Effect.provide(sealsIn(owner), Layer.fresh(Pools.layerUnverified))
      assert.deepStrictEqual(unproved, ["unverified"])
    }).pipe(Effect.provide(inMemory()))
  )

  /** Counts what is read and checked of pools, with a keyring that may lack the key of every row. */
  const counting = () => {
    const counts = { load: 0, parkings: 0, verify: 0 }
    const keyring = { isAnother: false }
    const counted = <A, E>(name: keyof typeof counts, effect: Effect.Effect<A, E>) =>
      Effect.suspend(() => {
        counts[name] += 1
        return effect
      })
    const layer = Pools.layer.pipe(
      Layer.provide([
        changing(Cipher, (cipher) => ({
          ...cipher,
          verify: (sealed, context) => {
            counts.verify += 1
            return keyring.isAnother ? Result.fail(new UnknownKeyId(sealed)) : cipher.verify(sealed, context)
          }
        })),
        changing(CredentialPools, (pools) => ({
          ...pools,
          load: (owner, provider, known) =>
            counted(known === undefined ? "load" : "parkings", pools.load(owner, provider, known))
        }))
      ]),
      Layer.fresh
    )
    return { layer, keyring, read: () => ({ ...counts }) }
  }

  it.effect("verify a row again a second after a failure, and never after a success (E17)", () => {
    const { keyring, layer, read } = counting()
    return Effect.gen(function* () {
      const owner = yield* newTenant
      yield* create(owner)
      yield* Effect.gen(function* () {
        keyring.isAnother = true
        const { expire } = yield* Pools
        assert.lengthOf(yield* sealsIn(owner), 1)
        keyring.isAnother = false
        assert.deepStrictEqual(yield* sealsIn(owner), ["unknown_key"])
        for (const _ of ["first", "again"]) {
          yield* TestClock.adjust(1000)
          assert.deepStrictEqual(yield* sealsIn(owner), ["verified"])
        }
        assert.deepStrictEqual(read(), { load: 1, parkings: 1, verify: 2 })
        for (const _ of ["a key did not open", "nor a moment later"]) {
          expire(owner, "azure")
          yield* sealsIn(owner)
          assert.deepStrictEqual(read(), { load: 2, parkings: 1, verify: 2 })
        }
      }).pipe(Effect.provide(layer))
    }).pipe(Effect.provide(inMemory()))
  })

  it.effect("verify a row again if its sealed content changed, not after a new name, rewrap or parking (E17)", () => {
    const { keyring, layer, read } = counting()
    return Effect.gen(function* () {
      const owner = yield* newTenant
      const ids = yield* Effect.forEach([1, 2, 3], () => Effect.map(create(owner), ({ id }) => id))
      const [first = assert.fail(), second = assert.fail()] = ids
      const { credentials } = yield* Memory
      const { store } = yield* Parkings
      yield* Effect.gen(function* () {
        const all = ["verified", "verified", "verified"]
        assert.deepStrictEqual(yield* sealsIn(owner), all)
        assert.deepStrictEqual(read(), { load: 1, parkings: 0, verify: 3 })
        yield* update(owner, first, { disabled: true })
        assert.deepStrictEqual(yield* sealsIn(owner), all)
        yield* update(owner, first, { key: "sk-other-0123456789-0123456789-AbCd" })
        assert.deepStrictEqual(yield* sealsIn(owner), all)
        assert.deepStrictEqual(read(), { load: 3, parkings: 0, verify: 5 })

        keyring.isAnother = true
        yield* update(owner, second, { name: "renamed" })
        assert.deepStrictEqual(yield* sealsIn(owner), all)
        yield* TestClock.adjust("59 seconds")
        const parking = { account_id: owner.account_id, credential_id: first, key_version: 2, model: "", epoch: 0 }
        yield* store([{ ...parking, cause: "rejected", strikes: 1, remaining: 1000 }])
        assert.deepStrictEqual(yield* sealsIn(owner), all)
        assert.deepStrictEqual(read(), { load: 4, parkings: 1, verify: 5 })
        const row = credentials.get(first) ?? assert.fail("no row")
        credentials.set(first, { ...row, sealed: { ...row.sealed, wrapped_dek: new Uint8Array(60) } })
        yield* TestClock.adjust("1 second")
        for (const _ of ["a minute after it was read", "again"]) {
          assert.deepStrictEqual(yield* sealsIn(owner), all)
          assert.deepStrictEqual(read(), { load: 5, parkings: 1, verify: 5 })
        }

        credentials.set(first, { ...row, credential: { ...row.credential, is_required: true } })
        yield* TestClock.adjust("1 minute")
        assert.includeMembers(yield* sealsIn(owner), ["unknown_key"], "what was sealed is another")
        keyring.isAnother = false
        yield* TestClock.adjust(1000)
        assert.includeMembers(yield* sealsIn(owner), ["altered"], "one that is not verified is checked again")
      }).pipe(Effect.provide(layer))
    }).pipe(Effect.provide(inMemory()))
  })

  it.effect("show after a minute a change that raised no version (Q19)", () => {
    const unraised = changing(CredentialPools, (pools) => {
      const first = new Map<string, Effect.Success<ReturnType<typeof pools.versions>>>()
      return {
        ...pools,
        versions: (...args) =>
          Effect.map(pools.versions(...args), (versions) => {
            const name = JSON.stringify(args)
            first.set(name, first.get(name) ?? versions)
            return first.get(name) ?? versions
          })
      }
    })
    return Effect.gen(function* () {
      const owner = yield* newTenant
      const { id } = yield* create(owner)
      const { credentials } = yield* Memory
      yield* Effect.gen(function* () {
        assert.deepStrictEqual(yield* sealsIn(owner), ["verified"])
        const row = credentials.get(id) ?? assert.fail("no row")
        credentials.set(id, { ...row, credential: { ...row.credential, disabled: true } })
        yield* TestClock.adjust(59_999)
        assert.deepStrictEqual(yield* sealsIn(owner), ["verified"])
        yield* TestClock.adjust(1)
        assert.deepStrictEqual(yield* sealsIn(owner), ["altered"])
      }).pipe(Effect.provide(Layer.fresh(Layer.provide(Pools.layer, unraised))))
    }).pipe(Effect.provide(inMemory()))
  })

  it.live("are read once for concurrent requests, and again for a request after a change (Q19)", () =>
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

describe("the cache of pools", () => {
  const mebibyte = 1024 * 1024
  const owners = Array.from({ length: 20 }, (_, n) => ({
    account_id: AccountId.make("00000000-0000-7000-8000-00000000000a"),
    workspace_id: WorkspaceId.make(`00000000-0000-7000-8000-${String(n).padStart(12, "0")}`)
  }))

  const sized = (bytes: number) => ({ version: "1", health: "1", members: 0, bytes })

  /** Empty pools that claim to be of some size, in a budget of 64 MiB; reading them is counted and waits for `reading`. */
  const largePools = (
    read: Array<string>,
    state: ReturnType<typeof sized>,
    reading: Effect.Effect<unknown> = Effect.void,
    budget = makeMemoryBudget(64 * mebibyte)
  ) => {
    const pool = Effect.sync(() => Option.some({ ...state, rows: [], parkings: new Map() }))
    return Layer.provide(Pools.layerUnverified, [
      Layer.succeed(MemoryBudget, budget),
      Layer.succeed(CredentialPools, {
        time: Effect.succeed(0),
        versions: ({ workspace_id = WorkspaceId.make(owners[0]?.workspace_id ?? "") }) =>
          Effect.succeedSome({ workspace_id, pools: [state] }),
        versionsOfKey: () => Effect.succeedNone,
        load: ({ workspace_id }, _provider, _known, admit = () => Effect.void) =>
          Effect.andThen(
            Effect.tap(admit({ parkings: 0, elements: 0 }), () => Effect.sync(() => read.push(workspace_id))),
            Effect.andThen(reading, pool)
          )
      })
    ])
  }

  it.effect("is limited by the recorded sizes of pools, and keeps the recently used ones (R4)", () => {
    const read: Array<string> = []
    return Effect.gen(function* () {
      const [first = assert.fail()] = owners
      for (const owner of owners) {
        yield* snapshotOf(owner)
        yield* snapshotOf(first)
      }
      assert.lengthOf(read, 20)
      yield* snapshotOf(owners[1] ?? first)
      assert.lengthOf(read, 21)
      yield* snapshotOf(first)
      assert.lengthOf(read, 21)
    }).pipe(Effect.provide(largePools(read, sized(3 * mebibyte))))
  })

  it.effect("refuses a pool that is too large before reading it (R4)", () => {
    const read: Array<string> = []
    return Effect.gen(function* () {
      const [owner = assert.fail()] = owners
      const refused = Effect.flip((yield* Pools).current(owner, ["azure"]))
      assert.instanceOf(yield* refused, ServiceUnavailable)
      assert.deepStrictEqual(read, [])
    }).pipe(Effect.provide(largePools(read, sized(40 * mebibyte))))
  })

  it.effect("reserves memory for text and credentials, more while reading, and none after a failure (R4)", () => {
    const budget = makeMemoryBudget(64 * mebibyte)
    const state = sized(0)
    const reading: Array<number> = []
    const noted = Effect.suspend(() => {
      reading.push(budget.held.pool)
      return state.version === "5" ? Effect.die("canary") : Effect.void
    })
    return Effect.gen(function* () {
      const [owner = assert.fail()] = owners
      const takes = Effect.fnUntraced(function* (version: string, bytes: number, members: number) {
        Object.assign(state, { version, bytes, members })
        yield* Effect.exit(snapshotOf(owner))
        assert.strictEqual(budget.held.pool, 0)
        return budget.cached()
      })
      const empty = yield* takes("1", 0, 0)
      assert.isAtLeast(empty, 1000)
      assert.strictEqual(yield* takes("2", 500, 0), empty + 1000)
      assert.isAtLeast(yield* takes("3", 0, 10), empty + 10 * 3500)
      assert.strictEqual(yield* takes("4", 0, 0), empty)
      assert.strictEqual(yield* takes("5", 9000, 0), empty)
      assert.deepStrictEqual(reading.slice(0, 3), [empty, empty + 1000, empty + 10 * (3500 + 2000)])
      assert.lengthOf(reading, 5)
    }).pipe(Effect.provide(largePools([], state, noted, budget)))
  })

  it.effect(
    "reserves memory for parkings each time they are read, and for lists until their pool is evicted (R4)",
    () => {
      const budget = makeMemoryBudget(64 * mebibyte)
      let [health, parked, read] = [0, 3 * mebibyte, 0]
      const listed = 10_000
      const lists = 32 * listed
      const state = () => ({ version: "1", health: String(health), members: 0, bytes: 0 })
      const rows = () => ({ ...state(), rows: [], parkings: new Map() })
      const pools = Layer.succeed(CredentialPools, {
        time: Effect.succeed(0),
        versions: ({ workspace_id = WorkspaceId.make("") }) => Effect.succeedSome({ workspace_id, pools: [state()] }),
        versionsOfKey: () => Effect.succeedNone,
        load: (_owner, _provider, known, admit = () => Effect.void) =>
          Effect.map(admit({ parkings: parked, elements: known === undefined ? listed : 0 }), () => {
            read += 1
            return Option.some(rows())
          })
      })
      return Effect.gen(function* () {
        const [owner = assert.fail(), other = assert.fail()] = owners
        for (health = 1; health <= 50; health++) {
          for (const one of [owner, other]) yield* snapshotOf(one)
        }
        assert.strictEqual(read, 100)
        assert.approximately(budget.cached(), 2 * (3 * mebibyte + lists), 10_000)
        health += 1
        parked = 40 * mebibyte
        assert.instanceOf(yield* Effect.flip((yield* Pools).current(owner, ["azure"])), ServiceUnavailable)
        assert.strictEqual(read, 100)
        assert.approximately(budget.cached() + budget.held.pool, 2 * (3 * mebibyte + lists), 10_000)
      }).pipe(Effect.provide(Layer.provide(Pools.layerUnverified, [Layer.succeed(MemoryBudget, budget), pools])))
    }
  )

  it.live("finishes reading a pool after the deadline of a request, and serves the next request from it", () => {
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
      }).pipe(Effect.provide(largePools(read, sized(1), Deferred.await(gate))))
    })
  })

  it.effect("serves without the database for as long as the requested freshness allows", () => {
    let isAway = false
    const leaving = changing(CredentialPools, (pools) => ({
      ...pools,
      versions: (...args) => (isAway ? Effect.fail(new ServiceUnavailable()) : pools.versions(...args))
    }))
    return Effect.gen(function* () {
      const owner = yield* newTenant
      yield* Effect.gen(function* () {
        yield* snapshotOf(owner)
        yield* TestClock.adjust("59 seconds")
        const confirmed = yield* snapshotOf(owner)
        isAway = true
        for (const freshness of [120_000, longestFreshness]) {
          yield* TestClock.adjust(freshness - (freshness === longestFreshness ? 120_001 : 0))
          assert.strictEqual(yield* snapshotOf(owner, freshness), confirmed)
          yield* TestClock.adjust(1)
          assert.instanceOf(yield* Effect.flip((yield* Pools).current(owner, ["azure"], freshness)), ServiceUnavailable)
        }
        isAway = false
        assert.notStrictEqual(yield* snapshotOf(owner), confirmed, "control: the database has it read again")
      }).pipe(Effect.provide(Layer.fresh(Layer.provide(Pools.layer, leaving))))
    }).pipe(Effect.provide(inMemory()))
  })

  it.effect("makes no query for pools and a default workspace that are as fresh as requested", () => {
    let asked = 0
    const { account_id } = owners[0] ?? assert.fail()
    const counted = changing(CredentialPools, (pools) => ({
      ...pools,
      versions: (...args) => {
        asked += 1
        return pools.versions(...args)
      }
    }))
    return Effect.gen(function* () {
      const owner = yield* newTenant
      yield* Effect.gen(function* () {
        const { current, currentForKey } = yield* Pools
        const askedAfter = Effect.fnUntraced(function* (freshness: number, named = true) {
          const asking = named ? owner : { account_id: owner.account_id }
          const { workspace_id } = yield* current(asking, ["azure"], freshness)
          assert.strictEqual(workspace_id, owner.workspace_id)
          return asked
        })
        assert.strictEqual(yield* askedAfter(1000), 1)
        yield* TestClock.adjust(800)
        assert.strictEqual(yield* askedAfter(1000, false), 2)
        assert.strictEqual(yield* askedAfter(1000, false), 2)
        yield* TestClock.adjust(1000)
        assert.strictEqual(yield* askedAfter(1000), 2)
        assert.strictEqual(yield* askedAfter(1000, false), 2)
        yield* TestClock.adjust(1)
        assert.strictEqual(yield* askedAfter(1000), 3)
        assert.strictEqual(yield* askedAfter(1000, false), 4, "the default workspace may be another one")
        assert.instanceOf(yield* Effect.flip(current({ account_id }, ["azure"])), UnknownWorkspace)
        const api_key_hash = yield* addApiKey(owner.account_id)
        const { workspace_id } = yield* newTenant
        assert.deepStrictEqual(yield* currentForKey({ api_key_hash }, ["azure"]), yield* current(owner, ["azure"]))
        assert.instanceOf(
          yield* Effect.flip(currentForKey({ api_key_hash, workspace_id }, ["azure"])),
          UnknownWorkspace
        )
        assert.instanceOf(yield* Effect.flip(currentForKey({ api_key_hash: yield* newHash }, ["azure"])), UnknownApiKey)
        for (const role of ["management", "viewer"] as const) {
          const other = yield* addApiKey(owner.account_id, role)
          assert.instanceOf(yield* Effect.flip(currentForKey({ api_key_hash: other }, ["azure"])), ApiKeyMayNotRoute)
        }
      }).pipe(Effect.provide(Layer.fresh(Layer.provide(Pools.layer, counted))))
    }).pipe(Effect.provide(inMemory()))
  })
})
