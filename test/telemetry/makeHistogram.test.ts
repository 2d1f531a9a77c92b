import { assert, describe, it } from "@effect/vitest"
import { Arbitrary } from "effect"
import { makeHistogram } from "../../src/telemetry/makeHistogram.ts"
import { integer } from "../support/memory/arbitraries.ts"

const bounds = [1, 5, 10]

describe("a histogram", () => {
  it.prop(
    "counts what is at most each bound, and adds up",
    [Arbitrary.array(integer(-2, 15), { maxLength: 50 })],
    ([values]) => {
      const { record, state } = makeHistogram(bounds)
      values.forEach(record)
      const { buckets, count, max, min, sum } = state()
      assert.deepStrictEqual(
        buckets,
        bounds.map((bound) => [bound, values.filter((value) => value <= bound).length])
      )
      assert.strictEqual(count, values.length)
      assert.strictEqual(
        sum,
        values.reduce((sum, value) => sum + value, 0)
      )
      if (values.length > 0) assert.deepStrictEqual([min, max], [Math.min(...values), Math.max(...values)])
    }
  )
})
