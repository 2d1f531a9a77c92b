import { assert, describe, it } from "../support/it.ts"
import { faults, known, seldom } from "./faults.ts"
import { historyOf } from "./History.ts"
import { plantedWorld } from "./planted.ts"
import { brokenIn, reportOf } from "./shrink.ts"
import { World } from "./World.ts"

const seeds = Array.from({ length: process.env["MUTATION_ROOT"] === undefined ? 2000 : 300 }, (_, n) => n + 1)

describe("simulated instances over one store", () => {
  it("obey every law in the histories of 2,000 seeds and in rare ones (L9, Q19, Q24, Q30, T6b)", () => {
    const broken = seeds.find((seed) => brokenIn(historyOf(seed)) !== undefined)
    assert.isUndefined(broken === undefined ? undefined : reportOf(broken))
    assert.isUndefined(seldom.map(brokenIn).find((broken) => broken !== undefined))
  })

  it("behave the same each time that a seed is run", () => {
    const told = () =>
      seeds.slice(0, 50).map((seed) => {
        const world = new World(historyOf(seed))
        return [world.run(), world.counts, world.simulation.now]
      })
    assert.deepStrictEqual(told(), told())
  })

  it.for(faults.map(({ edit, fault }) => [fault, edit] as const))(
    "break a law if this fault is planted: %s (control)",
    async ([fault, edit]) => {
      const { brokenIn } = await plantedWorld([edit])
      const isShown = (seed: number) => brokenIn(historyOf(seed)) !== undefined
      const isKnown = isShown(known[fault] ?? 1) || seldom.some((history) => brokenIn(history) !== undefined)
      assert.isTrue(isKnown || seeds.some(isShown))
    }
  )
})
