import { Arbitrary, Effect, Exit, Layer, Metric, Schema } from "effect"
import { ServiceUnavailable } from "../../src/domain/Errors.ts"
import { type Holding, layer, makeMemoryBudget, MemoryBudget } from "../../src/runtime/MemoryBudget.ts"
import { casesOf } from "../domain/routing/propertyRuns.ts"
import { integer } from "../support/memory/arbitraries.ts"
import { assert, describe, it } from "../support/it.ts"
import { Recording } from "../support/process/Recording.ts"

const mebibyte = 1024 * 1024
const registry = Layer.succeed(Metric.MetricRegistry, new Map())
const total = 100

const Step = Schema.Struct({
  act: Schema.Literals(["take", "take", "take", "give back", "cache", "cache", "find", "drop"]),
  account: Schema.Literals(["a", "b", "c"]),
  use: Schema.Literals(["body", "page", "pool", "gateway"]),
  /** Few sizes: sums that fit exactly are frequent. */
  bytes: Schema.Literals([1, 5, 10, 10, 20, 25, 50, 75, 100]),
  key: Schema.Literals(["x", "y", "z"])
})
type Step = typeof Step.Type
const anySteps = Arbitrary.flatMap(integer(1, 60), (length) =>
  Arbitrary.array(Arbitrary.schema(Step), { minLength: length, maxLength: length })
)

/** What a step did, and what is held and cached after it. */
type Run = (step: Step) => ReadonlyArray<unknown>

const makeSubject = (): Run => {
  const budget = makeMemoryBudget(total)
  const holdings = new Map<string, Holding>()
  const dropped: Array<string> = []
  const cache = budget.makeCache<string>((value) => void dropped.push(value))
  let count = 0
  const act = ({ account, act, bytes, key, use }: Step) => {
    const holding = holdings.get(`${account} ${use}`) ?? budget.hold(account, use)
    holdings.set(`${account} ${use}`, holding)
    if (act === "take") return holding.tryTake(bytes)
    if (act === "give back") return holding.giveBack(bytes)
    if (act === "cache") return cache.set(key, `${key}${(count += 1)}`, bytes)
    return act === "find" ? cache.get(key) : cache.delete(key)
  }
  return (step) => [act(step), dropped.splice(0), { ...budget.held }, budget.cached(), new Map(cache.entries())]
}

/** A simple, slow reference: lists of what is held and cached, searched each time. `rule` makes a broken one. */
const makeReference = (rule: "right" | "fixed share" | "routing shares too" | "oldest first" = "right"): Run => {
  const held: Array<{ account: string; use: Step["use"]; bytes: number }> = []
  /** Least recently used first. */
  let cached: Array<{ key: string; value: string; bytes: number }> = []
  const dropped: Array<string> = []
  let count = 0
  const sum = (some: ReadonlyArray<{ readonly bytes: number }>) => some.reduce((all, { bytes }) => all + bytes, 0)
  const drop = (key: string) => {
    dropped.push(...cached.filter((one) => one.key === key).map(({ value }) => value))
    cached = cached.filter((one) => one.key !== key)
  }
  const evictFor = (bytes: number) => {
    for (let [oldest] = cached; oldest !== undefined && sum(held) + sum(cached) + bytes > total; [oldest] = cached) {
      drop(oldest.key)
    }
  }
  const act = ({ account, act, bytes, key, use }: Step) => {
    const mine = held.find((one) => one.account === account && one.use === use)
    switch (act) {
      case "take": {
        const isTenants = use === "body" || use === "page" || rule === "routing shares too"
        const free = rule === "fixed share" ? total : total - sum(held)
        const ofAccount = sum(held.filter((one) => one.account === account))
        if (sum(held) + bytes > total || ofAccount + bytes > free * (isTenants ? 0.5 : 1)) return false
        evictFor(bytes)
        if (mine === undefined) held.push({ account, use, bytes })
        else mine.bytes += bytes
        return true
      }
      case "give back":
        if (mine !== undefined) mine.bytes = Math.min(mine.bytes, bytes)
        return undefined
      case "cache": {
        const value = `${key}${(count += 1)}`
        if (sum(held) + bytes > total) {
          drop(key)
          dropped.push(value)
          return undefined
        }
        evictFor(bytes)
        drop(key)
        cached.push({ key, value, bytes })
        return undefined
      }
      case "find": {
        const found = cached.find((one) => one.key === key)
        if (found !== undefined && rule !== "oldest first") cached = [...cached.filter((one) => one !== found), found]
        return found?.value
      }
      case "drop":
        return drop(key)
    }
  }
  return (step) => {
    const result = act(step)
    const bytesFor = (use: Step["use"]) => sum(held.filter((one) => one.use === use))
    const uses = {
      body: bytesFor("body"),
      page: bytesFor("page"),
      pool: bytesFor("pool"),
      gateway: bytesFor("gateway")
    }
    const names = new Map(cached.map(({ key, value }) => [key, value]))
    return [result, dropped.splice(0), uses, sum(cached), names]
  }
}

describe("a memory budget", () => {
  it.prop(
    "takes, gives back, caches and evicts exactly like a reference model, in any interleaving",
    [anySteps],
    ([steps]) => {
      const [subject, reference] = [makeSubject(), makeReference()]
      for (const step of steps) {
        const [result, ...state] = subject(step)
        assert.deepStrictEqual([result, ...state], reference(step))
        const [, held, cached] = state as [unknown, Record<string, number>, number]
        assert.isAtMost(
          Object.values(held).reduce((sum, bytes) => sum + bytes, cached),
          total
        )
      }
    },
    casesOf(400)
  )

  it.effect.each(["fixed share", "routing shares too", "oldest first"] as const)(
    "differs from a reference with another rule: %s (control)",
    function* (rule) {
      const sampled = yield* Arbitrary.sampleEffect(anySteps, { count: 400, seed: "planted" })
      const differs = sampled.some((steps) => {
        const [subject, reference] = [makeSubject(), makeReference(rule)]
        return steps.some((step) => JSON.stringify(subject(step)) !== JSON.stringify(reference(step)))
      })
      assert.isTrue(differs)
    }
  )

  it("gives one account half, three a quarter each, and leaves the next a quarter", () => {
    const takeAll = (accounts: ReadonlyArray<string>) => {
      const { hold } = makeMemoryBudget(1000)
      const holdings = accounts.map((account) => hold(account, "gateway"))
      const taken = accounts.map(() => 0)
      for (let n = 0; n < 1000; n += 1) {
        holdings.forEach(({ tryTake }, index) => (taken[index] = (taken[index] ?? 0) + (tryTake(1) ? 1 : 0)))
      }
      return taken
    }
    assert.deepStrictEqual(takeAll(["one"]), [500])
    assert.deepStrictEqual(takeAll(["one", "two", "three"]), [250, 250, 250])
  })

  it.effect("refuses at once, and logs if no account could ever hold as much", () =>
    Effect.gen(function* () {
      const { hold } = makeMemoryBudget(100 * mebibyte)
      const [page, pool] = [hold("one", "page"), hold("one", "pool")]
      const refused = Exit.fail(new ServiceUnavailable())
      assert.deepStrictEqual(yield* Effect.exit(page.take(50 * mebibyte + 1)), refused)
      assert.deepStrictEqual(yield* Effect.exit(pool.take(101 * mebibyte)), refused)
      yield* page.take(20 * mebibyte)
      assert.deepStrictEqual(yield* Effect.exit(page.take(30 * mebibyte)), refused)
      const { logs } = yield* Recording
      const said = logs.map(({ level, text }) => [level, /A \w+ of .* MiB/.exec(text)?.[0]])
      assert.deepStrictEqual(said, [
        ["Warn", "A page of 51 MiB was refused: MEMORY_BUDGET leaves it 50 MiB"],
        ["Warn", "A pool of 101 MiB was refused: MEMORY_BUDGET leaves it 100 MiB"]
      ])
    }).pipe(Effect.provide(Recording.layer))
  )

  it.effect("reports held bytes by use, and its total, as metrics", () =>
    Effect.gen(function* () {
      const { hold, makeCache } = yield* MemoryBudget
      const uses = ["body", "page", "pool", "gateway"] as const
      uses.forEach((use, n) => assert.isTrue(hold("one", use).tryTake(n + 1)))
      makeCache(() => {}).set("key", "value", 10)
      const series = (yield* Metric.snapshot).map(({ attributes, id, state }): ReadonlyArray<unknown> => [
        id,
        attributes?.["use"],
        Reflect.get(state, "value")
      ])
      assert.sameDeepMembers(series, [
        ["byok.memory.budget", undefined, 1000],
        ...uses.map((use, n) => ["byok.memory.held", use, n + 1]),
        ["byok.memory.held", "cache", 10]
      ])
    }).pipe(Effect.provide(layer(1000).pipe(Layer.provide(registry), Layer.merge(registry))))
  )
})
