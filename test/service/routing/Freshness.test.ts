import { Arbitrary, Context, Effect, Layer } from "effect"
import type { SqlClient } from "effect/sql"
import { CredentialPools } from "../../../src/port/CredentialPools.ts"
import * as CredentialsLive from "../../../src/service/credentials/Credentials.ts"
import { Router } from "../../../src/service/routing/Router.ts"
import * as SecureRandomLive from "../../../src/crypto/SecureRandomLive.ts"
import { newTenant } from "../../support/database/newTenant.ts"
import { type Ports, ThreeInstances } from "../../support/database/stores.ts"
import { ringOf } from "../../support/keys/keyrings.ts"
import { elementOf, integer } from "../../support/memory/arbitraries.ts"
import { cipherOn } from "../../support/memory/inMemory.ts"
import { assert, layerLive } from "../../support/it.ts"
import { changing } from "../../support/service/asTenant.ts"
import { type Batch, type Command, type Faults, type FaultyWrite, play, type Scene, sides } from "./freshnessModel.ts"

const second = 1000
const minute = 60 * second

const times = <A>(n: number, one: A): ReadonlyArray<A> => Array.from({ length: n }, () => one)
const kinds: ReadonlyArray<Command["kind"]> = [
  ...times(14, "try" as const),
  ...times(4, "sweep" as const),
  ...times(2, "reorder" as const),
  ...(["create", "create", "delete", "disable", "enable", "enable", "forbid", "allow", "allow"] as const),
  ...(["key", "require", "edit", "leak", "restart"] as const)
]
const outcomes = ["Rejected", "Rejected", "Rejected", "Succeeded", "Succeeded", "Abandoned", undefined] as const
const command: Arbitrary.Arbitrary<Command> = Arbitrary.all({
  kind: elementOf(kinds),
  side: elementOf(sides),
  pick: integer(0, 3),
  outcome: elementOf<Command["outcome"]>(outcomes),
  pause: integer(0, 5)
})
const waits = [0, 2 * second, ...times(3, 100 * second), 23 * minute, 71 * minute, 300 * minute, 300 * minute]
const batch: Arbitrary.Arbitrary<Batch> = Arbitrary.all({
  wait: elementOf(waits),
  resting: elementOf<Batch["resting"]>([undefined, undefined, ...sides]),
  commands: Arbitrary.array(command, { minLength: 1, maxLength: 6 })
})

const batchOf = (...commands: ReadonlyArray<Partial<Command> & Pick<Command, "kind">>): Batch => ({
  wait: 0,
  resting: undefined,
  commands: commands.map((one) => ({ side: 0, pick: 0, outcome: undefined, pause: 0, ...one }))
})
const create = { kind: "create" } as const
/** A pool of three and one of one. */
const founded = batchOf(create, create, { ...create, pick: 1 }, create)
const scene: Arbitrary.Arbitrary<Scene> = Arbitrary.map(
  Arbitrary.array(batch, { minLength: 10, maxLength: 14 }),
  (batches) => [founded, ...batches]
)
const rejected = { kind: "try", outcome: "Rejected" } as const
/** A key that is refused, tried with success, and forgotten. */
const recovered: Scene = [
  founded,
  batchOf(rejected),
  { ...batchOf({ kind: "try", outcome: "Succeeded" }), wait: 100 * second },
  { ...batchOf({ kind: "sweep" }), wait: 300 * minute },
  batchOf({ ...rejected, side: 1 })
]
/** Many are played at once, each for a tenant of its own. */
const scenes = Arbitrary.array(scene, { minLength: 9, maxLength: 9 })

type Wrapping = (router: Router["Service"]) => Router["Service"]
type Pools = Layer.Layer<CredentialPools, never, CredentialPools>

/** One instance: its services on a store, and what is wrong with it. */
const instance = (store: Context.Context<Ports>, change: Wrapping, pools: Pools) => {
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

interface Planted {
  readonly change?: Wrapping
  readonly pools?: Pools
  readonly faults?: Faults
}

/** Plays scenes on three instances over a database. */
const playAll = Effect.fnUntraced(function* (scenes: ReadonlyArray<Scene>, planted: Planted = {}) {
  const { ports, sql } = yield* ThreeInstances
  const { change = untouched, faults, pools = asItIs } = planted
  const start = (side: Command["side"]) => instance(ports[side], change, pools)
  const deadlocks = Effect.map(
    sql<{
      readonly n: number
    }>`SELECT deadlocks::integer AS n FROM pg_stat_database WHERE datname = current_database()`,
    ([row]) => row?.n ?? 0
  )
  const before = yield* deadlocks
  const found = yield* Effect.forEach(
    scenes,
    (scene) => Effect.flatMap(Effect.provide(newTenant, ports[0]), (owner) => play(start, sql, owner, scene, faults)),
    { concurrency: "unbounded" }
  )
  const met = (yield* deadlocks) - before
  const counts: Record<string, number> = {}
  for (const one of found) for (const [what, n] of Object.entries(one.counts)) counts[what] = (counts[what] ?? 0) + n
  return { wrong: [...found.flatMap(({ wrong }) => wrong), ...(met > 0 ? [`${met} deadlocks`] : [])], counts }
})

layerLive(ThreeInstances.layer)("plans and leases on three instances over one database", (it) => {
  it.effect.prop(
    "follow one sequential model in any interleaving of changes, parkings, sweeps and restarts (Q19, Q24, Q30)",
    [scenes],
    function* ([scenes]) {
      const { counts, wrong } = yield* playAll([recovered, ...scenes])
      assert.deepStrictEqual(wrong, [])
      for (const count of Object.values(counts)) assert.isAbove(count, 0, JSON.stringify(counts))
    },
    { arbitrary: { runs: 2, maxShrinks: 5 }, timeout: 240_000 }
  )

  /** The order of a pool turned round, as the service does it but for the row of the pool. */
  const turn = (sql: SqlClient.SqlClient, ids: ReadonlyArray<string>) => sql`
    UPDATE credentials SET sort_order = ${ids.length} - place
    FROM unnest(${ids}::uuid[]) WITH ORDINALITY AS wanted (wanted_id, place) WHERE id = wanted_id`
  const lock = (sql: SqlClient.SqlClient, { owner: { account_id } }: FaultyWrite, provider: string) => sql`
    UPDATE pools SET version = version + 1 WHERE account_id = ${account_id} AND provider = ${provider}`
  const raiseHealth = (sql: SqlClient.SqlClient, { owner: { account_id } }: FaultyWrite) => sql`
    UPDATE pools SET health = health + 1 WHERE account_id = ${account_id}`
  const controls: ReadonlyArray<{
    readonly fault: string
    readonly scene: Scene
    readonly finds: RegExp
    readonly planted: (sql: SqlClient.SqlClient) => Planted
  }> = [
    {
      fault: "snapshots are not validated",
      scene: [
        founded,
        batchOf(...sides.map((side) => ({ kind: "restart" as const, side }))),
        batchOf({ kind: "disable" })
      ],
      finds: /plan of 0 on \d said key 1, not disabled/,
      planted: () => ({ pools: unvalidated })
    },
    {
      fault: "leases go by what was true a minute ago",
      scene: [
        founded,
        { ...batchOf({ kind: "disable", side: 1 }), resting: 0 },
        { ...batchOf({ kind: "restart", side: 2 }), wait: 2 * second }
      ],
      finds: /a lease of key 1 in disabled/,
      planted: () => ({
        change: (router) => ({ ...router, lease: (plan, step) => router.lease({ ...plan, freshness: 60_000 }, step) })
      })
    },
    {
      fault: "a write forgets to raise the version of the pool",
      scene: [founded, batchOf({ kind: "reorder" })],
      finds: /tries/,
      planted: (sql) => ({ faults: { reorder: ({ ids }) => turn(sql, ids) } })
    },
    {
      fault: "a write raises the health of the pool after its members",
      scene: [batchOf(create), batchOf({ kind: "leak" }, { kind: "restart", side: 1, pause: 400 })],
      finds: /plan of 0 on \d said key 1, not leaked/,
      planted: (sql) => ({
        faults: {
          leak: (write) =>
            Effect.andThen(
              sql`
                INSERT INTO credential_parkings (account_id, credential_id, model, key_version, cause, strikes, parked_at)
                SELECT account_id, id, '', key_version, 'leaked', 0, now() FROM credentials WHERE id = ${write.ids[0]}`,
              Effect.andThen(Effect.sleep("1 second"), raiseHealth(sql, write))
            )
        }
      })
    },
    {
      fault: "a write locks pools in another order",
      scene: [founded, batchOf({ kind: "reorder" }, { kind: "leak", pause: 300 })],
      finds: /deadlock/,
      planted: (sql) => ({
        faults: {
          reorder: (write) =>
            lock(sql, write, "openai").pipe(
              Effect.andThen(Effect.sleep("1 second")),
              Effect.andThen(Effect.andThen(turn(sql, write.ids), lock(sql, write, "azure"))),
              sql.withTransaction,
              Effect.retry({ times: 3 })
            )
        }
      })
    },
    {
      fault: "parkings are swept that an instance remembers",
      scene: [
        founded,
        batchOf(rejected),
        { ...batchOf({ kind: "try", outcome: "Succeeded" }), wait: 100 * second },
        { ...batchOf({ kind: "sweep" }), wait: 71 * minute },
        batchOf({ ...rejected, side: 1 })
      ],
      finds: /plan of 0 on 0 said key 1, not rejected/,
      planted: (sql) => ({
        faults: {
          sweep: (write) =>
            Effect.andThen(
              sql`
                DELETE FROM credential_parkings WHERE credential_id = ${write.ids[0]}
                AND greatest(until, parked_at) < now() - interval '65 minutes'`,
              raiseHealth(sql, write)
            )
        }
      })
    }
  ]

  it.effect.each(controls)("fail the same model if $fault (control)", function* ({ finds, planted, scene }) {
    const { sql } = yield* ThreeInstances
    const { wrong } = yield* playAll([scene], planted(sql))
    assert.isTrue(
      wrong.some((one) => finds.test(one)),
      wrong.join("\n")
    )
  })
})
