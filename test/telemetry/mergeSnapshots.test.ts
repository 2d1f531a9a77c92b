import { assert, describe, it } from "@effect/vitest"
import { Arbitrary } from "effect"
import { families, type Family, type FamilyName } from "../../src/telemetry/families.ts"
import { mergeSnapshots, remainsOf } from "../../src/telemetry/mergeSnapshots.ts"
import type { Reading, Series, Snapshot } from "../../src/telemetry/Snapshot.ts"
import { elementOf, integer } from "../support/memory/arbitraries.ts"

const names = Object.keys(families) as ReadonlyArray<FamilyName>

/** Counts of each bucket, then what lies beyond the last bound. */
const readingOf = ({ bounds = [], type }: Family, numbers: ReadonlyArray<number>): Reading => {
  const [first = 0] = numbers
  if (type !== "histogram") return { type, value: first }
  let below = 0
  const buckets = bounds.map((_, index) => (below += numbers[index % numbers.length] ?? 0))
  return { type, buckets, count: below + first, sum: first * 8 }
}

const series: Arbitrary.Arbitrary<Series> = Arbitrary.map(
  Arbitrary.all({
    family: elementOf(names),
    label: elementOf(["one", "other"]),
    numbers: Arbitrary.array(integer(0, 1000), { minLength: 1, maxLength: 5 })
  }),
  ({ family, label, numbers }) => ({ family, attributes: { label }, reading: readingOf(families[family], numbers) })
)

/** What one process shows: each series once. */
const snapshot: Arbitrary.Arbitrary<Snapshot> = Arbitrary.map(Arbitrary.array(series, { maxLength: 20 }), (found) =>
  mergeSnapshots([Array.from(new Map(found.map((one) => [`${one.family} ${one.attributes["label"]}`, one])).values())])
)

const find = (snapshot: Snapshot, { attributes, family }: Series) =>
  snapshot.filter((one) => one.family === family && one.attributes["label"] === attributes["label"])

describe("the snapshots of several processes", () => {
  it.prop("may be merged in any order", [snapshot, snapshot], ([one, other]) => {
    assert.deepStrictEqual(mergeSnapshots([one, other]), mergeSnapshots([other, one]))
  })

  it.prop("may be merged step by step", [snapshot, snapshot, snapshot], ([one, two, three]) => {
    assert.deepStrictEqual(
      mergeSnapshots([mergeSnapshots([one, two]), three]),
      mergeSnapshots([one, mergeSnapshots([two, three])])
    )
    assert.deepStrictEqual(mergeSnapshots([one, two, three]), mergeSnapshots([mergeSnapshots([one, two]), three]))
  })

  it.prop("are what one process shows if there is no other", [snapshot], ([one]) => {
    assert.deepStrictEqual(mergeSnapshots([one, []]), one)
    assert.deepStrictEqual(mergeSnapshots([]), [])
  })

  it.prop(
    "have each series once: counts and histograms added, gauges as their family says",
    [snapshot, snapshot],
    ([one, other]) => {
      const merged = mergeSnapshots([one, other])
      for (const given of [...one, ...other]) {
        const [first, second] = [...find(one, given), ...find(other, given)].map(({ reading }) => reading)
        const [found, ...more] = find(merged, given).map(({ reading }) => reading)
        assert.isEmpty(more)
        if (first === undefined || second === undefined) {
          assert.deepStrictEqual(found, first)
          continue
        }
        const { across }: Family = families[given.family]
        if (first.type === "histogram" && second.type === "histogram" && found?.type === "histogram") {
          assert.strictEqual(found.count, first.count + second.count)
          assert.strictEqual(found.sum, first.sum + second.sum)
          assert.deepStrictEqual(
            found.buckets,
            first.buckets.map((below, index) => below + (second.buckets[index] ?? Number.NaN))
          )
        } else if (first.type !== "histogram" && second.type !== "histogram" && found?.type !== "histogram") {
          const values = [first.value, second.value] as const
          const expected = { sum: values[0] + values[1], max: Math.max(...values), min: Math.min(...values) }[across]
          assert.strictEqual(found?.value, expected)
        } else assert.fail("a series has changed its type")
      }
    }
  )

  it.prop("keep of a process that has ended what must not shrink", [snapshot], ([one]) => {
    const remains = remainsOf(one)
    assert.isTrue(remains.every(({ reading }) => reading.type !== "gauge"))
    assert.strictEqual(remains.length, one.filter(({ reading }) => reading.type !== "gauge").length)
  })

  it("add what counts, and let one unready process make the whole unready", () => {
    const gauges = names.filter((name) => families[name].type === "gauge")
    const acrossOf = (wanted: string) => gauges.filter((name) => families[name].across === wanted)
    assert.isTrue(names.every((name) => families[name].type === "gauge" || families[name].across === "sum"))
    assert.deepStrictEqual(acrossOf("sum"), [
      "http.server.active_requests",
      "byok.db.queue.depth",
      "process.memory.usage"
    ])
    assert.deepStrictEqual(acrossOf("min"), ["byok.ready"])
  })
})
