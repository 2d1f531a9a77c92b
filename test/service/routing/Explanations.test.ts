import { setFlagsFromString } from "node:v8"
import { runInNewContext } from "node:vm"
import { Effect, Layer } from "effect"
import { TestClock } from "effect/testing"
import { CurrentPrincipal } from "../../../src/domain/Principal.ts"
import { explanationBody } from "../../../src/domain/routing/Explanation.ts"
import type { PlanRequest } from "../../../src/domain/routing/RoutingRequest.ts"
import { Explanations } from "../../../src/port/Explanations.ts"
import { makeMemoryBudget, MemoryBudget } from "../../../src/runtime/MemoryBudget.ts"
import type { PoolOwner } from "../../../src/port/CredentialPools.ts"
import * as ExplanationsLive from "../../../src/service/routing/Explanations.ts"
import { Router } from "../../../src/service/routing/Router.ts"
import { newTenant } from "../../support/database/newTenant.ts"
import { inMemory } from "../../support/memory/inMemory.ts"
import { create, remove, update } from "../../support/service/asTenant.ts"
import { attempt, planOf, requestOf } from "../../support/service/planning.ts"
import { assert, describe, it } from "../../support/it.ts"

/** The body of an explanation, whether it is the one that was answered before, and how many bytes were admitted for it. */
const makeExplain = (owner: PoolOwner) => {
  let before: Uint8Array | undefined
  const explained = Effect.fnUntraced(function* (change: object) {
    const { explain, explainedBody } = yield* Explanations
    const request: PlanRequest = requestOf(owner, change)
    let admitted = 0
    const admit = (bytes: number) => Effect.sync(() => void (admitted += bytes))
    const body = yield* explainedBody(request, { reserved: 0, admit })
    assert.deepStrictEqual(body, explanationBody(yield* explain(request)), "it is what would be made")
    const isKept = body === before
    before = body
    return { isKept, admitted, length: body.length }
  })
  return (change: object = {}) =>
    Effect.provideService(explained(change), CurrentPrincipal, { kind: "in_process", account_id: owner.account_id })
}

const manyKeys = Effect.fnUntraced(function* (owner: PoolOwner, name?: string) {
  return yield* Effect.forEach(Array.from({ length: 20 }), () => create(owner, name === undefined ? {} : { name }))
})

/** The heap after collecting garbage in a later task: weak references stay alive within the current one. */
const heapUsed = Effect.promise(async () => {
  setFlagsFromString("--expose-gc")
  const collect = runInNewContext("gc") as () => void
  await new Promise((resolve) => setImmediate(resolve))
  collect()
  return process.memoryUsage().heapUsed
})

const live = Layer.provideMerge(Layer.merge(ExplanationsLive.layer, Router.layer), inMemory())

describe("the body of an explanation of a large pool", () => {
  it.effect("is computed once, and again after each change of pool, health or request (Q19, Q20)", () =>
    Effect.gen(function* () {
      const owner = yield* newTenant
      const [first = assert.fail(), second = assert.fail()] = yield* manyKeys(owner)
      const explain = makeExplain(owner)
      const refuse = Effect.flatMap(planOf(owner), (plan) => attempt(plan, { _tag: "RateLimited", retry_after: null }))
      const changes = [
        explain({ model: "another/model" }),
        update(owner, first.id, { name: "renamed" }),
        remove(owner, second.id),
        // The report is stored in the background, once the test clock moves.
        Effect.andThen(refuse, TestClock.adjust(1000)),
        // The key is on trial then, and is free an hour later.
        TestClock.adjust(5000),
        TestClock.adjust(3_600_000)
      ]
      yield* explain()
      for (const change of changes) {
        assert.isTrue((yield* explain()).isKept)
        yield* change
        assert.isFalse((yield* explain()).isKept)
      }
    }).pipe(Effect.provide(live))
  )

  it.effect("is computed once for concurrent requests", () =>
    Effect.gen(function* () {
      const owner = yield* newTenant
      yield* manyKeys(owner)
      const { explainedBody } = yield* Explanations
      const one = explainedBody(requestOf(owner), { reserved: 0, admit: () => Effect.void })
      const bodies = yield* Effect.all([one, one, one], { concurrency: "unbounded" }).pipe(
        Effect.provideService(CurrentPrincipal, { kind: "in_process", account_id: owner.account_id })
      )
      assert.strictEqual(new Set(bodies).size, 1)
    }).pipe(Effect.provide(live))
  )

  it.effect("reserves memory before it is computed, and is cached in evictable memory (T9)", () =>
    Effect.gen(function* () {
      const owner = yield* newTenant
      yield* manyKeys(owner, "é".repeat(255))
      const { admit, held } = yield* MemoryBudget
      const explain = makeExplain(owner)
      yield* planOf(owner)
      const pool = held.spare
      const { admitted, length } = yield* explain()
      assert.isAtLeast(admitted, 2 * length)
      assert.isAtLeast(held.spare - pool, length)
      assert.isTrue((yield* explain()).isKept, "control")
      const room = yield* admit(owner.account_id, "route", 2_000_000)
      assert.strictEqual(held.spare, 0)
      room.release()
      assert.isFalse((yield* explain()).isKept)
      for (let n = 0; n < 20; n += 1) yield* explain({ model: `model/${n}` })
      assert.isAtMost(held.spare - pool, 5 * length, "a few of each pool")
    }).pipe(Effect.provide(live), Effect.provideService(MemoryBudget, makeMemoryBudget(2_000_000)))
  )

  it.effect("does not keep outdated pools in the memory budget (T9)", () =>
    Effect.gen(function* () {
      const owner = yield* newTenant
      const [first = assert.fail()] = yield* manyKeys(owner)
      const { held } = yield* MemoryBudget
      const explain = makeExplain(owner)
      yield* explain()
      const once = held.spare
      for (let n = 0; n < 50; n += 1) {
        yield* update(owner, first.id, { name: String(n) })
        yield* explain()
      }
      assert.isAtMost(held.spare, once + 100)
    }).pipe(Effect.provide(live), Effect.provideService(MemoryBudget, makeMemoryBudget(20_000_000)))
  )

  it.effect("does not keep outdated pools on the heap, nor do plans (T9)", () =>
    Effect.gen(function* () {
      const owner = yield* newTenant
      const targets = [{ provider: "azure" }, { provider: "anthropic" }]
      const keys = yield* Effect.forEach(targets, ({ provider }) =>
        Effect.map(
          Effect.forEach(Array.from({ length: 100 }), () => create(owner, { provider })),
          ([first = assert.fail()]) => first
        )
      )
      const explain = makeExplain(owner)
      /** Changes one pool and then asks for both, that one first. */
      const changes = Effect.fnUntraced(function* (count: number) {
        for (let n = 0; n < count; n += 1) {
          yield* update(owner, keys[n % 2]?.id ?? assert.fail(), { name: String(n) })
          const asked = { targets: n % 2 === 0 ? targets : targets.toReversed() }
          yield* explain(asked)
          yield* planOf(owner, asked)
        }
      })
      yield* changes(10)
      const before = yield* heapUsed
      yield* changes(60)
      assert.isBelow((yield* heapUsed) - before, 4_000_000)
    }).pipe(Effect.provide(live))
  )
})
