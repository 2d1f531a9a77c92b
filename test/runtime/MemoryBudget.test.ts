import { Arbitrary, Effect, Exit, Fiber, Layer, Metric } from "effect"
import { ServiceUnavailable } from "../../src/domain/Errors.ts"
import { layer, makeMemoryBudget, MemoryBudget } from "../../src/runtime/MemoryBudget.ts"
import { type Edit, plantedUrl } from "../domain/routing/plantedIn.ts"
import { anySteps, type Code, isToldApart, runSteps } from "./memoryModel.ts"
import { casesOf } from "../domain/routing/propertyRuns.ts"
import { assert, describe, it } from "../support/it.ts"
import { Recording } from "../support/process/Recording.ts"

const mebibyte = 1024 * 1024
const registry = Layer.succeed(Metric.MetricRegistry, new Map())

describe("a memory budget", () => {
  it.prop(
    "admits, evicts and releases exactly like a reference model, in any interleaving",
    [anySteps],
    ([steps]) => runSteps(makeMemoryBudget, steps),
    casesOf(400)
  )

  it.effect("queues a reservation as large as the whole budget until all others are released", function* () {
    const { admit, held, reserve } = makeMemoryBudget(100)
    const first = reserve("one", "route")
    assert.isTrue(first.grow(1, () => {}))
    const all = yield* Effect.forkChild(admit("another", "pool", 100))
    yield* Effect.yieldNow
    assert.deepStrictEqual([held.route, held.pool], [1, 0])
    first.release()
    yield* Fiber.join(all)
    assert.deepStrictEqual([held.route, held.pool], [0, 100])
  })

  it.effect("refuses at once a reservation larger than the budget, and logs why", () =>
    Effect.gen(function* () {
      const { admit } = makeMemoryBudget(100 * mebibyte)
      yield* admit("one", "route", 100 * mebibyte)
      const [page, pool] = [75 * mebibyte + 1, 101 * mebibyte]
      assert.deepStrictEqual(yield* Effect.exit(admit("one", "page", page)), Exit.fail(new ServiceUnavailable()))
      assert.deepStrictEqual(yield* Effect.exit(admit("one", "pool", pool)), Exit.fail(new ServiceUnavailable()))
      const { logs } = yield* Recording
      const said = logs.map(({ level, text }) => [level, /A \w+ of .* MiB/.exec(text)?.[0]])
      assert.deepStrictEqual(said, [
        ["Warn", "A page of 76 MiB was refused: MEMORY_BUDGET leaves it 75 MiB"],
        ["Warn", "A pool of 101 MiB was refused: MEMORY_BUDGET leaves it 100 MiB"]
      ])
    }).pipe(Effect.provide(Recording.layer))
  )

  it("evicts nothing for a reservation that never fits, and never evicts an empty reservation", () => {
    const budget = makeMemoryBudget(100)
    const events: Array<string> = []
    const reserveRevocable = (account: string, name: string, bytes: number) => {
      const one = budget.reserve(account, "route", () => {
        events.push(name)
        one.release()
      })
      assert.isTrue(one.grow(bytes, () => {}))
      return one
    }
    const tooLarge = budget.reserve("one", "route")
    assert.isFalse(tooLarge.grow(101, () => events.push("grown")))
    tooLarge.release()
    const shrunk = reserveRevocable("one", "shrunk", 5)
    reserveRevocable("one", "large", 60)
    shrunk.shrink(0)
    reserveRevocable("one", "new", 30)
    const other = budget.reserve("another", "route")
    assert.isFalse(other.grow(20, () => events.push("admitted")))
    assert.deepStrictEqual(events, ["large", "admitted"])
  })

  it.effect("keeps a quarter from the tenants' requests", () =>
    Effect.gen(function* () {
      const { admit, reserve, tenantsTotal } = makeMemoryBudget(192 * mebibyte)
      assert.strictEqual(tenantsTotal, 144 * mebibyte)
      const all = yield* admit("one", "route", 192 * mebibyte)
      const more = reserve("one", "route")
      assert.isFalse(more.grow(1, () => {}))
      for (const one of [more, all]) one.release()
    })
  )

  it.effect("reports reserved bytes by use, and its total, as metrics", () =>
    Effect.gen(function* () {
      const { reserve } = yield* MemoryBudget
      const uses = ["body", "page", "pool", "route", "gateway"] as const
      uses.forEach((use, n) => assert.isTrue(reserve("one", use).grow(n + 1, () => {})))
      const spare = reserve("one", "pool")
      spare.grow(10, () => {})
      spare.makeEvictable(() => spare.release())
      const series = (yield* Metric.snapshot).map(({ attributes, id, state }): ReadonlyArray<unknown> => [
        id,
        attributes?.["use"],
        Reflect.get(state, "value")
      ])
      assert.sameDeepMembers(series, [
        ["byok.memory.budget", undefined, 1000],
        ...uses.map((use, n) => ["byok.memory.held", use, n + 1]),
        ["byok.memory.held", "spare", 10]
      ])
    }).pipe(Effect.provide(layer(1000).pipe(Layer.provide(registry), Layer.merge(registry))))
  )

  const faults: ReadonlyArray<readonly [fault: string, file: "FairQueue" | "MemoryBudget", ...edit: Edit]> = [
    ["reservations together may exceed the total", "FairQueue", "used + weight <= limit\n", "used <= limit\n"],
    [
      "a request overtakes waiting ones",
      "FairQueue",
      "queues.size > 0 || used + weight > limit",
      "used + weight > limit"
    ],
    ["an account keeps its turn after it was served", "FairQueue", "    queues.delete(tenant)\n", ""],
    ["small requests never overtake large ones", "FairQueue", "leastShare = share", "return undefined"],
    ["every request overtakes large ones", "FairQueue", "if (share > leastShare) continue", ""],
    ["an admitted request that is withdrawn releases nothing", "FairQueue", "used -= weight\n", ""],
    ["a withdrawal serves no waiting request", "FairQueue", "release(extraWeight)", "used -= extraWeight"],
    [
      "a withdrawn request is served",
      "FairQueue",
      "queue?.delete(place) === true && queue.size === 0",
      "queue?.size === 0"
    ],
    [
      "accounts take the quarter that is kept for routing",
      "MemoryBudget",
      "tenantUses.has(use) ? tenantsTotal : total",
      "total"
    ],
    ["shrinking reserves more", "MemoryBudget", "Math.max(0, this.bytes - bytes)", "this.bytes - bytes"],
    [
      "evictable bytes stay although a request waits for them",
      "MemoryBudget",
      "evictUntil(() => queue.fits(place))",
      ""
    ],
    ["more is evicted than needed", "MemoryBudget", "evictUntil(() => queue.fits(place))", "evictUntil(() => false)"],
    [
      "eviction ignores which bytes were used last",
      "MemoryBudget",
      "if (this.list === evictable) this.moveTo(evictable)",
      ""
    ],
    [
      "evictable bytes take the quarter that is kept for routing",
      "MemoryBudget",
      "queue.used() <= tenantsTotal || ",
      "true || "
    ],
    [
      "transferred bytes take the quarter that is kept for routing",
      "MemoryBudget",
      "this.release()\n      evictUntil(leavesRoutersShare)",
      "this.release()"
    ],
    ["more is transferred than reserved", "MemoryBudget", "Math.min(bytes, this.bytes)", "bytes"],
    ["transferred bytes are released, too", "MemoryBudget", "this.count(-moved)", "this.bytes += 0"],
    ["evictable bytes count for their account", "MemoryBudget", 'if (this.use === "spare") return', ""],
    [
      "a waiting account takes bytes even from one that then has less",
      "MemoryBudget",
      "largest.bytes - oldest.bytes < wanted",
      "false"
    ],
    [
      "bytes are taken from the smallest account, not the largest",
      "MemoryBudget",
      "other.bytes > one.bytes",
      "other.bytes < one.bytes"
    ],
    ["a revoked reservation is revoked again", "MemoryBudget", "if (oldest.isRevoked) continue", ""],
    ["more is revoked while enough is being released", "MemoryBudget", "queue.used() + revokedBytes", "queue.used()"],
    [
      "a request to grow waits on after its reservation was released",
      "MemoryBudget",
      "queue.leave(waitingPlace, excess)",
      "queue.release(excess)"
    ]
  ]
  const sampled = Effect.cached(Arbitrary.sampleEffect(anySteps, { count: 400, seed: "planted" })).pipe(Effect.runSync)

  /** Whether some run differs from the reference after an edit of a source. */
  const isFound = Effect.fnUntraced(function* (file?: "FairQueue" | "MemoryBudget", edit?: Edit) {
    const runtime = new URL("../../src/runtime/", import.meta.url)
    const linked = ["effect", "../domain/Errors.ts", "./Deadline.ts", "./Meter.ts", "./onEnd.ts"].map((name) => [
      name,
      name === "effect" ? import.meta.resolve(name) : new URL(name, runtime).href
    ])
    const editsOf = (one: string) => (edit === undefined || one !== file ? [] : [edit])
    const imports = Object.fromEntries(linked) as Record<string, string>
    const queue = plantedUrl("../../runtime/FairQueue.ts", editsOf("FairQueue"), imports)
    const url = plantedUrl("../../runtime/MemoryBudget.ts", editsOf("MemoryBudget"), {
      ...imports,
      "./FairQueue.ts": queue
    })
    const planted = yield* Effect.promise(() => import(url) as Promise<{ readonly makeMemoryBudget: Code }>)
    return (yield* sampled).some((steps) => isToldApart(planted.makeMemoryBudget, steps))
  })

  it.effect.each(faults)(
    "differs from the reference model if this fault is planted: %s (control)",
    ([, file, ...edit]) => Effect.map(isFound(file, edit), (found) => assert.isTrue(found))
  )

  it.effect("equals the reference model if no fault is planted (control of the controls)", () =>
    Effect.map(isFound(), (found) => assert.isFalse(found))
  )
})
