import { Arbitrary, Effect, Exit, Fiber } from "effect"
import { ServiceUnavailable } from "../../src/domain/Errors.ts"
import { makeMemoryBudget } from "../../src/runtime/MemoryBudget.ts"
import { type Edit, plantedUrl } from "../domain/routing/plantedIn.ts"
import { anySteps, type Code, isToldApart, runSteps } from "./memoryModel.ts"
import { casesOf } from "../domain/routing/propertyRuns.ts"
import { assert, describe, it } from "../support/it.ts"

describe("a budget of memory", () => {
  it.prop(
    "admits, lets go and gives back exactly as its plain reference, in any interleaving",
    [anySteps],
    ([steps]) => runSteps(makeMemoryBudget, steps),
    casesOf(400)
  )

  it.effect("lets wait what fits when all is free, and grows what held nothing", function* () {
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

  it.effect("refuses what never fits at once, and tells why", function* () {
    const { admit } = makeMemoryBudget(100)
    yield* admit("one", "route", 100)
    assert.deepStrictEqual(yield* Effect.exit(admit("one", "page", 76)), Exit.fail(new ServiceUnavailable()))
    assert.deepStrictEqual(yield* Effect.exit(admit("one", "pool", 101)), Exit.fail(new ServiceUnavailable()))
  })

  const faults: ReadonlyArray<readonly [fault: string, file: "FairQueue" | "MemoryBudget", ...edit: Edit]> = [
    ["the sum may exceed the total", "FairQueue", "used + weight <= limit\n", "used <= limit\n"],
    [
      "somebody overtakes who waits",
      "FairQueue",
      "lines.size > 0 || used + weight > limit",
      "used + weight > limit"
    ],
    ["a tenant keeps its turn", "FairQueue", "    lines.delete(tenant)\n", ""],
    ["the small never pass the large", "FairQueue", "leastShare = share", "return undefined"],
    ["everybody passes the large", "FairQueue", "if (share > leastShare) continue", ""],
    ["an admitted place that leaves gives nothing back", "FairQueue", "used -= weight\n", ""],
    ["nobody is served when somebody leaves", "FairQueue", "release(taken)", "used -= taken"],
    [
      "a place that has left is served",
      "FairQueue",
      "line?.delete(place) === true && line.size === 0",
      "line?.size === 0"
    ],
    ["tenants take the last quarter", "MemoryBudget", "tenantUses.has(use) ? tenantsTotal : total", "total"],
    ["what is shrunk is given back twice", "MemoryBudget", "if (excess <= 0) return", ""],
    ["what is spare stays", "MemoryBudget", "evictUntil(() => queue.fits(place))", ""],
    ["more goes than is needed", "MemoryBudget", "evictUntil(() => queue.fits(place))", "evictUntil(() => false)"],
    ["what was used last goes first", "MemoryBudget", "if (this.list === evictable) this.moveTo(evictable)", ""],
    ["spare bytes take the last quarter", "MemoryBudget", "queue.used() <= tenantsTotal || ", "true || "],
    [
      "what is left to a spare one takes the last quarter",
      "MemoryBudget",
      "this.release()\n      evictUntil(leavesRoutersShare)",
      "this.release()"
    ],
    ["what is left is more than was held", "MemoryBudget", "Math.min(bytes, this.bytes)", "bytes"],
    ["what is left is given back, too", "MemoryBudget", "this.count(-left)", "this.bytes += 0"],
    ["spare bytes count for their account", "MemoryBudget", 'if (this.use === "spare") return', ""],
    ["whoever waits takes all", "MemoryBudget", "largest.bytes - oldest.bytes < wanted", "false"],
    ["the smallest account gives way", "MemoryBudget", "other.bytes > one.bytes", "other.bytes < one.bytes"],
    ["what is leaving is asked again", "MemoryBudget", "if (oldest.isRevoked) continue", ""],
    ["more goes while enough is leaving", "MemoryBudget", "queue.used() + revokedBytes", "queue.used()"],
    ["what waits to grow outlives its holding", "MemoryBudget", "queue.leave(waiting, bytes)", "queue.release(bytes)"]
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

  it.effect.each(faults)("would not be one if %s (control)", ([, file, ...edit]) =>
    Effect.map(isFound(file, edit), (found) => assert.isTrue(found))
  )

  it.effect("is as it is without a fault (control of the controls)", () =>
    Effect.map(isFound(), (found) => assert.isFalse(found))
  )
})
