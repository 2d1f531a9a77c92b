import { Arbitrary, DateTime, Effect, Exit } from "effect"
import { AccountId, WorkspaceId } from "../../../src/domain/Identifiers.ts"
import { availabilityOf } from "../../../src/domain/routing/Health.ts"
import type { Plan } from "../../../src/domain/routing/Plan.ts"
import { planFor } from "../../../src/domain/routing/planFor.ts"
import { type PooledCredential, poolOf } from "../../../src/domain/routing/Pool.ts"
import { makeHealthState } from "../../../src/service/routing/HealthState.ts"
import { makePlanCache, restrictionsOf } from "../../../src/service/routing/makePlanCache.ts"
import { type Edit, plantedUrl } from "../../domain/routing/plantedIn.ts"
import { plainCredential } from "../../support/database/plainCredential.ts"
import { elementOf, integer } from "../../support/memory/arbitraries.ts"
import { requestOf } from "../../support/service/planning.ts"
import { assert, describe, it } from "../../support/it.ts"

const account_id = AccountId.make("00000000-0000-7000-8000-00000000000a")
const workspace_id = WorkspaceId.make("00000000-0000-7000-8000-00000000000b")
const members = 20

/** A pool whose first credential may be disabled, and tell models, keys or users apart. */
const snapshotOf = (change: object) => {
  const pool = poolOf(
    Array.from({ length: members }, (_, n) => ({
      credential: {
        ...plainCredential(workspace_id, `00000000-0000-7000-9000-${String(n).padStart(12, "0")}`),
        ...{ provider: "azure" as const, created_at: DateTime.makeUnsafe(0), sort_order: n },
        ...(n === 0 ? change : {})
      },
      ...{ key_version: 1, leaked: false, row: "1", seal: "verified" as const, stored: new Map() }
    }))
  )
  return { pool, restricts: restrictionsOf(pool) }
}

const hash = "a".repeat(64)
const requests = [
  ...[{}, { model: "b/model" }, { user_id: "one" }, { api_key_hash: hash }, { requires_zdr: true }],
  { targets: [{ provider: "azure", endpoint: { shared: false } }] }
]
const anyAct = Arbitrary.all({
  request: elementOf(requests),
  /** What happens before it is planned. */
  act: elementOf(["nothing", "nothing", "refusal", "wait", "change"] as const),
  member: integer(0, 1),
  millis: elementOf([1, 4_999, 5_000, 3_600_000]),
  change: elementOf([
    {},
    { disabled: true },
    { allowed_models: ["b/model"] },
    { allowed_user_ids: ["one"] },
    { allowed_api_key_hashes: [hash] }
  ])
})
const anyActs = Arbitrary.array(anyAct, { minLength: 1, maxLength: 20 })
type Acts = ReadonlyArray<typeof anyAct extends Arbitrary.Arbitrary<infer A> ? A : never>

/** Plans after each act, and compares with a plan that is made anew. Answers how many were made. */
const run = (make: typeof makePlanCache, acts: Acts) => {
  const health = makeHealthState()
  const cache = make<Plan>(health.changes)
  let now = 0
  let snapshot = snapshotOf({})
  let made = 0
  for (const { act, change, member, millis, request } of acts) {
    const asked = requestOf({ account_id, workspace_id }, request)
    const keyOf = ({ credential, key_version }: PooledCredential) => ({
      ...{ account_id, credential_id: credential.id, key_version, model: asked.model }
    })
    if (act === "change") snapshot = snapshotOf(change)
    if (act === "wait") now += millis
    if (act === "refusal") {
      const one = snapshot.pool[member] ?? assert.fail("no member")
      const at = health.healthOf(keyOf(one), one.stored, now)
      health.report(keyOf(one), at, { _tag: "RateLimited", retry_after: null }, now)
    }
    const moment = { monotonic: now, wall: 1e12 + now }
    const availability = (one: PooledCredential) =>
      availabilityOf(health.healthOf(keyOf(one), one.stored, now), one.leaked, moment)
    const kept = cache.find(asked, [snapshot], moment)
    const { keep, noting } = cache.begin(asked, [snapshot], moment)
    if (kept === undefined) made += 1
    const planned = kept ?? keep(planFor(asked, () => snapshot.pool, noting(availability)))
    const expected = planFor(asked, () => snapshot.pool, availability)
    assert.deepStrictEqual(planned, expected)
  }
  return made
}

describe("plans that are kept", () => {
  it.effect.prop(
    "are those that would be made, whatever changes meanwhile",
    [anyActs],
    ([acts]) => Effect.sync(() => void run(makePlanCache, acts)),
    { arbitrary: { runs: 200 } }
  )

  it("are made once while nothing changes", () => {
    const same = { ...{ request: {}, member: 0, millis: 1, change: {} }, act: "nothing" } as const
    assert.strictEqual(run(makePlanCache, Array<typeof same>(10).fill(same)), 1)
  })

  const faults: ReadonlyArray<readonly [fault: string, ...edit: Edit]> = [
    ["what is learned of a key does not count", "entry.change === changes()", "true"],
    ["the end of a cooldown does not count", "now.monotonic < entry.until", "true"],
    ["a key on trial does not count", 'availability._tag !== "Free"', 'availability._tag === "Parked"'],
    ["another user has the same plan", "some(({ restricts }) => restricts.users)", "some(() => false)"],
    ["another key has the same plan", "some(({ restricts }) => restricts.apiKeys)", "some(() => false)"],
    ["another model has the same plan", '["model", "host"', '["host"'],
    ["another endpoint has the same plan", "endpoint[name] === target.endpoint[name]", "true"]
  ]
  const samples = Effect.runSync(Arbitrary.sampleEffect(anyActs, { count: 300, seed: "planted" }))
  it.effect.each(faults)("would not be if %s (control)", function* ([, ...edit]) {
    const url = plantedUrl("../../service/routing/makePlanCache.ts", [edit])
    const planted = yield* Effect.promise(() => import(url) as Promise<{ makePlanCache: typeof makePlanCache }>)
    const isFound = (acts: Acts) =>
      Exit.isFailure(Effect.runSyncExit(Effect.sync(() => run(planted.makePlanCache, acts))))
    assert.isTrue(samples.some(isFound))
  })
})
