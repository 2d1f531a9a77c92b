import { assert } from "@effect/vitest"
import { Arbitrary, Context, Duration, Effect, Layer } from "effect"
import { CredentialPools } from "../../../src/port/CredentialPools.ts"
import * as CredentialsLive from "../../../src/service/credentials/Credentials.ts"
import { Router } from "../../../src/service/routing/Router.ts"
import * as SecureRandomLive from "../../../src/crypto/SecureRandomLive.ts"
import { newTenant } from "../../support/database/newTenant.ts"
import { type Ports, TwoInstances } from "../../support/database/stores.ts"
import { ringOf } from "../../support/keys/keyrings.ts"
import { elementOf, integer, oneOf } from "../../support/memory/arbitraries.ts"
import { cipherOn } from "../../support/memory/inMemory.ts"
import { layerLive } from "../../support/process/layerLive.ts"
import { changing } from "../../support/service/asTenant.ts"
import {
  type Change,
  type Findings,
  type LastChange,
  play,
  type Reader,
  type Scene,
  type Writer
} from "./freshnessModel.ts"

const side = elementOf<0 | 1>([0, 1])

const change = Arbitrary.all({
  change: elementOf<Change>(["disable", "enable", "forbid", "allow", "key", "require", "park", "unpark", "leak"]),
  side,
  pause: integer(0, 100)
})
const writer: Arbitrary.Arbitrary<Writer> = Arbitrary.all({
  changes: Arbitrary.array(change, { minLength: 4, maxLength: 10 }),
  last: elementOf<LastChange | undefined>([undefined, "delete", "edit"])
})

/** Most leases come at once; one in eight comes so late that the database must be asked again. */
const planning = Arbitrary.all({
  pause: integer(0, 100),
  freshness: oneOf(Arbitrary.Constant(0), integer(1, 200)),
  leaseAfter: Arbitrary.map(integer(0, 1600), (pick) => (pick < 1400 ? pick % 20 : pick - 400))
})
const reader: Arbitrary.Arbitrary<Reader> = Arbitrary.all({
  side,
  plans: Arbitrary.array(planning, { minLength: 4, maxLength: 8 })
})
const scene: Arbitrary.Arbitrary<Scene> = Arbitrary.all({
  writers: Arbitrary.array(writer, { minLength: 1, maxLength: 3 }),
  readers: Arbitrary.array(reader, { minLength: 1, maxLength: 4 })
})

/** Scenes take their time, so many are played at once, on pools of their own. */
const scenes = Arbitrary.array(scene, { minLength: 12, maxLength: 12 })

type Wrapping = (router: Router["Service"]) => Router["Service"]

/** One instance: its services on a store, and what is wrong with it. */
const instance = (
  store: Context.Context<Ports>,
  change: Wrapping,
  pools: Layer.Layer<CredentialPools, never, CredentialPools>
) => {
  const router = changing(Router, change).pipe(Layer.provide(Layer.provide(Router.layer, pools)))
  return Layer.build(
    Layer.fresh(
      Layer.merge(CredentialsLive.layer, router).pipe(
        Layer.provide([cipherOn(ringOf("kek")), SecureRandomLive.layer]),
        Layer.provideMerge(Layer.succeedContext(store))
      )
    )
  )
}

const asItIs = changing(CredentialPools, (pools) => pools)
const untouched: Wrapping = (router) => router

/** Answers with the first version of a pool, so whatever was read of it counts as current. */
const unvalidated = changing(CredentialPools, (pools) => {
  const first = new Map<string, Effect.Success<ReturnType<typeof pools.versions>>>()
  return {
    ...pools,
    versions: (...args) => {
      const name = JSON.stringify(args)
      const known = first.get(name)
      if (known !== undefined) return Effect.succeed(known)
      return Effect.tap(pools.versions(...args), (versions) => Effect.sync(() => first.set(name, versions)))
    }
  }
})

/** Plays scenes on two instances over a database. */
const playAll = Effect.fnUntraced(function* (
  scenes: ReadonlyArray<Scene>,
  change: Wrapping = untouched,
  pools: typeof asItIs = asItIs
) {
  const { ports, sql } = yield* TwoInstances
  const sides = [yield* instance(ports[0], change, pools), yield* instance(ports[1], change, pools)] as const
  const found: ReadonlyArray<Findings> = yield* Effect.forEach(
    scenes,
    (scene) => Effect.flatMap(Effect.provide(newTenant, ports[0]), (owner) => play(sides, sql, owner, scene)),
    { concurrency: "unbounded" }
  )
  const sum = (of: keyof Findings["counts"]) => found.reduce((all, { counts }) => all + counts[of], 0)
  return {
    stale: found.flatMap(({ stale }) => stale),
    counts: { plans: sum("plans"), offered: sum("offered"), leased: sum("leased"), refused: sum("refused") }
  }
})

/** Keys that are replaced all the time, with plans beside them, and a lease that comes too late. */
const rotations: Scene = {
  writers: [{ changes: Array.from({ length: 12 }, () => ({ change: "key", side: 1, pause: 120 })), last: undefined }],
  readers: [
    { side: 1, plans: Array.from({ length: 12 }, () => ({ pause: 100, freshness: 0, leaseAfter: 0 })) },
    { side: 0, plans: [{ pause: 0, freshness: 0, leaseAfter: 1500 }] }
  ]
}

layerLive(TwoInstances.layer)("plans and leases on two instances over one database", (it) => {
  it.effect.prop(
    "never go by what was changed before they began, in any interleaving of updates, deletes, parkings and edits (Q19)",
    [scenes],
    ([scenes]) =>
      Effect.gen(function* () {
        const { counts, stale } = yield* playAll(scenes)
        assert.deepStrictEqual(stale, [])
        for (const count of Object.values(counts)) assert.isAbove(count, 0, JSON.stringify(counts))
      }),
    { arbitrary: { runs: 2, maxShrinks: 5 }, timeout: 240_000 }
  )

  it.effect.prop(
    "are caught by the same model if snapshots are not validated (Q19, control)",
    [scenes],
    ([scenes]) => Effect.map(playAll(scenes, untouched, unvalidated), ({ stale }) => assert.isAbove(stale.length, 0)),
    { arbitrary: { runs: 1 }, timeout: 120_000 }
  )

  it.effect("are caught by the same model if plans or leases go by what was true a minute ago (Q19, control)", () =>
    Effect.gen(function* () {
      const agedPlan: Wrapping = (router) => ({
        ...router,
        plan: (request) => Effect.map(router.plan(request, Duration.minutes(1)), (plan) => ({ ...plan, freshness: 0 }))
      })
      const agedLease: Wrapping = (router) => ({
        ...router,
        lease: (plan, step) => router.lease({ ...plan, freshness: 60_000 }, step)
      })
      const wrappings = [untouched, agedPlan, agedLease]
      const [healthy = [], ...found] = yield* Effect.forEach(
        wrappings,
        (wrapping) => Effect.map(playAll([rotations], wrapping), ({ stale }) => stale),
        { concurrency: "unbounded" }
      )
      assert.deepStrictEqual(healthy, [])
      for (const [index, words] of ["a plan of 0 said key", "a lease of key"].entries()) {
        const stale = found[index] ?? []
        assert.isTrue(
          stale.some((one) => one.startsWith(words)),
          stale.join("\n")
        )
      }
    })
  )
})
