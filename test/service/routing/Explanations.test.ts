import { Effect, Layer } from "effect"
import { CurrentPrincipal } from "../../../src/domain/Principal.ts"
import type { PlanRequest } from "../../../src/domain/routing/RoutingRequest.ts"
import { Explanations } from "../../../src/port/Explanations.ts"
import { makeMemoryBudget, MemoryBudget } from "../../../src/runtime/MemoryBudget.ts"
import type { PoolOwner } from "../../../src/port/CredentialPools.ts"
import * as ExplanationsLive from "../../../src/service/routing/Explanations.ts"
import { newTenant } from "../../support/database/newTenant.ts"
import { inMemory } from "../../support/memory/inMemory.ts"
import { create, update } from "../../support/service/asTenant.ts"
import { requestOf } from "../../support/service/planning.ts"
import { assert, describe, it } from "../../support/it.ts"

/** Explains a request of an account. Returns its explanation and the bytes that were taken for it. */
const explainFor = Effect.fnUntraced(function* (owner: PoolOwner) {
  const { explain } = yield* Explanations
  const request: PlanRequest = requestOf(owner)
  let taken = 0
  const memory = { taken: 0, take: (bytes: number) => Effect.sync(() => void (taken += bytes)) }
  const explaining = explain(request, memory)
  const principal = { kind: "in_process", account_id: owner.account_id } as const
  return { explanation: yield* Effect.provideService(explaining, CurrentPrincipal, principal), taken }
})

const manyKeys = (owner: PoolOwner, name: string) =>
  Effect.forEach(Array.from({ length: 20 }), () => create(owner, { name }))

const live = Layer.provideMerge(ExplanationsLive.layer, inMemory())

describe("an explanation of a large pool", () => {
  it.effect("takes memory before it is computed (T9)", () =>
    Effect.gen(function* () {
      const owner = yield* newTenant
      yield* manyKeys(owner, "\u00e9".repeat(255))
      const { explanation, taken } = yield* explainFor(owner)
      assert.isAtLeast(taken, 2 * JSON.stringify(explanation).length)
    }).pipe(Effect.provide(live))
  )

  it.effect("does not keep outdated pools in the memory budget (T9)", () =>
    Effect.gen(function* () {
      const owner = yield* newTenant
      const [first = assert.fail()] = yield* manyKeys(owner, "a key")
      const { cached } = yield* MemoryBudget
      yield* explainFor(owner)
      const once = cached()
      for (let n = 0; n < 50; n += 1) {
        yield* update(owner, first.id, { name: `key ${n % 10}` })
        yield* explainFor(owner)
      }
      assert.isAtMost(cached(), once + 100)
    }).pipe(Effect.provide(live), Effect.provideService(MemoryBudget, makeMemoryBudget(20_000_000)))
  )
})
