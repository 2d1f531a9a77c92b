import { Arbitrary, Effect, Exit, Layer } from "effect"
import { layerLimited, limits, WrapBudget } from "../../src/crypto/WrapBudget.ts"
import { KekRegistry } from "../../src/port/KekRegistry.ts"
import { elementOf, integer } from "../support/memory/arbitraries.ts"
import { logLines } from "../support/process/Recording.ts"
import * as MemoryStore from "../support/memory/Memory.ts"
import { Memory } from "../support/memory/Memory.ts"
import { assert, describe, it } from "../support/it.ts"

/** Another instance of the service over the registry in scope. */
const instance = (lowered: typeof limits) =>
  Effect.flatMap(KekRegistry, (registry) =>
    Effect.provide(
      WrapBudget,
      Layer.fresh(layerLimited(lowered)).pipe(Layer.provide(Layer.succeed(KekRegistry, registry)))
    )
  )

/** The keys of every instance. */
const keks = new Map([
  ["kek-1", {}],
  ["kek-2", {}]
])

/** A test on a new registry that knows these keys. */
const registered = <A, E>(test: Effect.Effect<A, E, KekRegistry | Memory>) =>
  Effect.gen(function* () {
    const registry = yield* KekRegistry
    const known = Array.from(keks.keys(), (kek_id) => ({ kek_id, check_value: new Uint8Array(16) }))
    assert.deepStrictEqual(yield* registry.register(known), [])
    return yield* test
  }).pipe(Effect.provide(Layer.fresh(MemoryStore.layer)))

const counted = (kek_id: string) => Effect.map(Memory, ({ keks }) => keks.get(kek_id)?.wraps)

/** How many of a number of spends in a row succeed. */
const spend = (budget: WrapBudget["Service"], times: number, kek_id = "kek-1") =>
  Effect.map(
    Effect.forEach(Array.from({ length: times }), () => Effect.exit(budget.spend(kek_id, keks))),
    (exits) => exits.filter(Exit.isSuccess).length
  )

describe("counting wraps against the limit of a key (SECURITY.md, Sealing format 1)", () => {
  it("warns at 2^31 wraps and refuses at 2^32", () => {
    assert.deepStrictEqual([limits.warn, limits.refuse], [2 ** 31, 2 ** 32])
  })

  it.effect("reserves wraps in blocks, with one call of the registry per block", () =>
    Effect.gen(function* () {
      const budget = yield* instance({ block: 10, warn: 1000, refuse: 1000 })
      for (const [spent, reserved] of [
        [1, 10],
        [9, 10],
        [1, 20],
        [10, 30]
      ] as const) {
        assert.strictEqual(yield* spend(budget, spent), spent)
        assert.strictEqual(yield* counted("kek-1"), reserved)
      }
      assert.strictEqual(yield* counted("kek-2"), 0)
    }).pipe(registered)
  )

  it.effect("reserves one block at a time for concurrent callers, and counts every wrap", () =>
    Effect.gen(function* () {
      const registry = yield* KekRegistry
      const slow = KekRegistry.of({
        ...registry,
        reserve: (...wraps) => Effect.andThen(Effect.yieldNow, registry.reserve(...wraps))
      })
      const budget = yield* Effect.provideService(instance({ block: 10, warn: 1000, refuse: 1000 }), KekRegistry, slow)
      yield* Effect.forEach(Array.from({ length: 95 }), () => budget.spend("kek-1", keks), { concurrency: "unbounded" })
      assert.strictEqual(yield* counted("kek-1"), 100)
    }).pipe(registered)
  )

  it.effect("refuses further wraps of a key at its limit, logs it, and leaves other keys alone", () =>
    Effect.gen(function* () {
      const written: Array<string> = []
      const budget = yield* instance({ block: 4, warn: 8, refuse: 8 })
      yield* Effect.provide(
        Effect.gen(function* () {
          assert.strictEqual(yield* spend(budget, 8), 8)
          const refused = yield* Effect.flip(
            Effect.catchTag(budget.spend("kek-1", keks), ["ServiceUnavailable", "DatabaseFailure"], Effect.die)
          )
          assert.strictEqual(refused._tag, "SealingRefused")
          assert.strictEqual(refused.reason, "key kek-1 has reached its limit of wraps")
          assert.strictEqual(yield* spend(budget, 8, "kek-2"), 8)
        }),
        logLines(written)
      )
      assert.deepStrictEqual(written, ["Error Key kek-1 has reached its limit of 8 wraps: rotate the keyring"])
    }).pipe(registered)
  )

  it.effect("logs a warning above the warning level, not at or below it", () =>
    Effect.gen(function* () {
      const written: Array<string> = []
      const budget = yield* instance({ block: 4, warn: 8, refuse: 16 })
      yield* Effect.provide(
        Effect.gen(function* () {
          yield* spend(budget, 8)
          assert.deepStrictEqual(written, [])
          yield* spend(budget, 1)
          assert.deepStrictEqual(written, ["Warn Key kek-1 has wrapped 12 times: rotate the keyring"])
          assert.strictEqual(yield* spend(budget, 7), 7)
        }),
        logLines(written)
      )
    }).pipe(registered)
  )

  const plan = Arbitrary.all({
    block: integer(1, 7),
    refuse: integer(0, 40),
    steps: Arbitrary.array(
      Arbitrary.all({ at: integer(0, 2), kek_id: elementOf(["kek-1", "kek-2"]), times: integer(1, 9) }),
      { maxLength: 30 }
    )
  })
  type Plan = typeof plan extends Arbitrary.Arbitrary<infer A> ? A : never

  const withinLimit = ({ block, refuse, steps }: Plan, build: typeof instance) =>
    Effect.gen(function* () {
      const lowered = { block, refuse, warn: 1000 }
      const instances = yield* Effect.all([build(lowered), build(lowered), build(lowered)])
      const granted = new Map([
        ["kek-1", 0],
        ["kek-2", 0]
      ])
      for (const { at, kek_id, times } of steps) {
        const budget = instances[at] ?? instances[0]
        granted.set(kek_id, (granted.get(kek_id) ?? 0) + (yield* spend(budget, times, kek_id)))
      }
      for (const [kek_id, wraps] of granted) {
        if (wraps > refuse || wraps > ((yield* counted(kek_id)) ?? 0)) return false
      }
      return true
    }).pipe(registered)

  it.effect.prop("never exceeds the limit, for any interleaving of three instances and two keys", [plan], ([steps]) =>
    withinLimit(steps, instance)
  )

  it.effect("exceeds the limit if every instance counts for itself (control)", function* () {
    const alone = (lowered: typeof limits) => Effect.orDie(registered(instance(lowered)))
    const checked = yield* Arbitrary.checkEffect(plan, (steps) => withinLimit(steps, alone))
    assert.strictEqual(checked._tag, "Falsified")
  })
})
