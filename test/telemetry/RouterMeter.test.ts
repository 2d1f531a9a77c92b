import { Effect, Layer, Metric, Option } from "effect"
import { ServiceUnavailable } from "../../src/domain/Errors.ts"
import { ApiKeyHash, WorkspaceId } from "../../src/domain/Identifiers.ts"
import { CredentialPools } from "../../src/port/CredentialPools.ts"
import { Router } from "../../src/service/routing/Router.ts"
import { prometheusText } from "../../src/management/ManagementServer.ts"
import { newTenant } from "../support/database/newTenant.ts"
import { samplesIn } from "../support/http/samplesIn.ts"
import { inMemory } from "../support/memory/inMemory.ts"
import { create, update } from "../support/service/asTenant.ts"
import { attempt, planOf, requestOf } from "../support/service/planning.ts"
import { assert, describe, it } from "../support/it.ts"

const registry = Layer.sync(Metric.MetricRegistry, () => new Map())
const service = () => Router.layer.pipe(Layer.provideMerge(inMemory()), Layer.provideMerge(registry))

/** The samples of routers that are not zero. */
const samples = Effect.map(Effect.context(), (context) =>
  Object.fromEntries(
    Array.from(samplesIn(prometheusText(context))).filter(
      ([name, value]) => name.startsWith("byok_router_") && value !== 0
    )
  )
)

describe("the metric series of a router", () => {
  it.effect("exist before the first request", () =>
    Effect.gen(function* () {
      const text = prometheusText(yield* Effect.context())
      for (const name of ["plans", "leases", "exclusions", "parkings"])
        assert.include(text, `byok_router_${name}_total{`)
      assert.deepStrictEqual(yield* samples, {})
    }).pipe(Effect.provide(service()))
  )

  it.effect("count plans, leases, exclusions by reason and parkings by cause", () =>
    Effect.gen(function* () {
      const owner = yield* newTenant
      const { id } = yield* create(owner)
      yield* attempt(owner, { _tag: "Succeeded" })
      assert.deepStrictEqual(yield* samples, {
        'byok_router_plans_total{result="ok"}': 1,
        'byok_router_leases_total{result="ok"}': 1,
        'byok_router_outcomes_total{provider="azure",outcome="succeeded"}': 1
      })
      yield* attempt(owner, { _tag: "Rejected" })
      const { nextAttempt } = yield* Router
      const next = Effect.scoped(nextAttempt(requestOf(owner), []))
      yield* next
      assert.deepStrictEqual(yield* samples, {
        'byok_router_plans_total{result="ok"}': 3,
        'byok_router_leases_total{result="ok"}': 2,
        'byok_router_exclusions_total{reason="parked"}': 1,
        'byok_router_outcomes_total{provider="azure",outcome="succeeded"}': 1,
        'byok_router_outcomes_total{provider="azure",outcome="rejected"}': 1,
        'byok_router_parkings_total{cause="rejected"}': 1
      })
      yield* update(owner, id, { disabled: true })
      yield* next
      const found = yield* samples
      assert.strictEqual(found['byok_router_exclusions_total{reason="disabled"}'], 1)
      const elsewhere = WorkspaceId.make("019ad5a0-6c1e-7b3a-9f52-3a1c5d7e9b11")
      yield* Effect.flip(planOf({ ...owner, workspace_id: elsewhere }))
      assert.strictEqual((yield* samples)['byok_router_plans_total{result="unknown_workspace"}'], 1)
      const api_key_hash = ApiKeyHash.make("0".repeat(64))
      yield* Effect.flip(
        Effect.flatMap(Router, ({ plan }) => {
          const { account_id: _, ...request } = requestOf(owner)
          return plan({ ...request, api_key_hash })
        })
      )
      assert.strictEqual((yield* samples)['byok_router_plans_total{result="unknown_api_key"}'], 1)
    }).pipe(Effect.provide(service()))
  )

  it.effect("count plans with nothing left to try as exhausted, and those without the database as unavailable", () =>
    Effect.gen(function* () {
      const owner = yield* newTenant
      yield* create(owner, { is_byok_only: true })
      yield* attempt(owner, { _tag: "Rejected" })
      yield* planOf(owner)
      assert.strictEqual((yield* samples)['byok_router_plans_total{result="exhausted"}'], 1)

      const away = Layer.succeed(CredentialPools, {
        time: Effect.fail(new ServiceUnavailable()),
        versions: () => Effect.fail(new ServiceUnavailable()),
        versionsOfKey: () => Effect.succeedNone,
        load: () => Effect.succeed(Option.none())
      })
      yield* Effect.flip(Effect.provide(planOf(owner), Layer.provide(Layer.fresh(Router.layer), away)))
      assert.strictEqual((yield* samples)['byok_router_plans_total{result="unavailable"}'], 1)
    }).pipe(Effect.provide(service()))
  )
})
