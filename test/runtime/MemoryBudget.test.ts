import { Arbitrary, Effect, Exit, Fiber } from "effect"
import { ServiceUnavailable } from "../../src/domain/Errors.ts"
import { makeMemoryBudget } from "../../src/runtime/MemoryBudget.ts"
import { type Edit, plantedUrl } from "../domain/routing/plantedIn.ts"
import { anySteps, type Code, isToldApart, runSteps } from "./memoryModel.ts"
import { casesOf } from "../domain/routing/propertyRuns.ts"
import { assert, describe, it } from "../support/it.ts"

describe("a budget of memory", () => {
  it.prop(
    "admits, evicts and releases exactly like a simple reference, in any interleaving",
    [anySteps],
    ([steps]) => runSteps(makeMemoryBudget, steps),
    casesOf(400)
  )

  it.effect("queues a reservation that would fit an empty budget, and grows an empty reservation", function* () {
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

  it.effect("refuses at once a reservation that never fits, and logs why", function* () {
    const { admit } = makeMemoryBudget(100)
    yield* admit("one", "route", 100)
    assert.deepStrictEqual(yield* Effect.exit(admit("one", "page", 76)), Exit.fail(new ServiceUnavailable()))
    assert.deepStrictEqual(yield* Effect.exit(admit("one", "pool", 101)), Exit.fail(new ServiceUnavailable()))
  })

  const faults: ReadonlyArray<readonly [fault: string, file: "FairQueue" | "MemoryBudget", ...edit: Edit]> = [
    ["the sum may exceed the total", "FairQueue", "used + weight <= limit\n", "used <= limit\n"],
    [
      "a request overtakes waiting ones",
      "FairQueue",
      "lines.size > 0 || used + weight > limit",
      "used + weight > limit"
    ],
    ["a tenant keeps its turn", "FairQueue", "    lines.delete(tenant)\n", ""],
    ["light places never overtake heavy ones", "FairQueue", "leastShare = share", "return undefined"],
    ["every place overtakes heavy ones", "FairQueue", "if (share > leastShare) continue", ""],
    ["an admitted place that leaves releases nothing", "FairQueue", "used -= weight\n", ""],
    ["leaving serves no waiting place", "FairQueue", "release(taken)", "used -= taken"],
    [
      "a place that has left is served",
      "FairQueue",
      "line?.delete(place) === true && line.size === 0",
      "line?.size === 0"
    ],
    ["tenants take the last quarter", "MemoryBudget", "tenantUses.has(use) ? tenantsTotal : total", "total"],
    ["shrinking releases twice", "MemoryBudget", "if (excess <= 0) return", ""],
    ["evictable bytes stay", "MemoryBudget", "evictUntil(() => queue.fits(place))", ""],
    ["more is evicted than needed", "MemoryBudget", "evictUntil(() => queue.fits(place))", "evictUntil(() => false)"],
    ["the last used is evicted first", "MemoryBudget", "if (this.list === evictable) this.moveTo(evictable)", ""],
    ["evictable bytes take the last quarter", "MemoryBudget", "queue.used() <= tenantsTotal || ", "true || "],
    [
      "transferred bytes take the last quarter",
      "MemoryBudget",
      "this.release()\n      evictUntil(leavesRoutersShare)",
      "this.release()"
    ],
    ["more is transferred than reserved", "MemoryBudget", "Math.min(bytes, this.bytes)", "bytes"],
    ["transferred bytes are released, too", "MemoryBudget", "this.count(-left)", "this.bytes += 0"],
    ["evictable bytes count for their account", "MemoryBudget", 'if (this.use === "spare") return', ""],
    ["a waiting account takes everything", "MemoryBudget", "largest.bytes - oldest.bytes < wanted", "false"],
    ["the smallest account gives way", "MemoryBudget", "other.bytes > one.bytes", "other.bytes < one.bytes"],
    ["a revoked reservation is revoked again", "MemoryBudget", "if (oldest.isRevoked) continue", ""],
    ["more is revoked while enough is being released", "MemoryBudget", "queue.used() + revokedBytes", "queue.used()"],
    ["a waiting growth outlives its reservation", "MemoryBudget", "queue.leave(waiting, bytes)", "queue.release(bytes)"]
  ]
  const samples = Effect.runSync(Arbitrary.sampleEffect(anySteps, { count: 400, seed: "planted" }))

  /** Whether some run notices that a text of a source is replaced. */
  const isFound = Effect.fnUntraced(function* (file?: "FairQueue" | "MemoryBudget", edit?: Edit) {
    const runtime = new URL("../../src/runtime/", import.meta.url)
    const linked = ["effect", "../domain/Errors.ts", "./Deadline.ts", "./Meter.ts"].map((name) => [
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
    return samples.some((steps) => isToldApart(planted.makeMemoryBudget, steps))
  })

  it.effect.each(faults)("differs from the reference if %s (control)", ([, file, ...edit]) =>
    Effect.map(isFound(file, edit), (found) => assert.isTrue(found))
  )

  it.effect("equals the reference without a fault (control of the controls)", () =>
    Effect.map(isFound(), (found) => assert.isFalse(found))
  )
})
