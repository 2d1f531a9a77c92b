import { readFileSync } from "node:fs"
import { join } from "node:path"
import { series } from "../deploy/series.ts"
import { assert, describe, it } from "../support/it.ts"

describe("the metric series", () => {
  it("are exactly those that docs/operating.md lists, with the same types and labels", () => {
    const page = readFileSync(join(import.meta.dirname, "../../docs/operating.md"), "utf8")
    const rows = page.matchAll(/^\| `(\w+)` +\| (counter|gauge|histogram) +\| ([^|]*)\|/gm)
    const valuesIn = /: [^;]*|\([^)]*\)/g
    assert.deepStrictEqual(
      new Map(
        Array.from(rows, ([, name = "", type, cell = ""]) => {
          const labels = Array.from(cell.replace(valuesIn, "").matchAll(/`(\w+)`/g), ([, label]) => label)
          return [name, [type, ...labels]]
        })
      ),
      new Map(Array.from(series, ([name, { labels, type }]) => [name, [type, ...labels]]))
    )
  })

  it("have ascending buckets if they are histograms, and none otherwise", () => {
    for (const { bounds, type } of series.values()) {
      assert.strictEqual(bounds !== undefined, type === "histogram")
      assert.deepStrictEqual(
        bounds,
        bounds?.toSorted((one, other) => one - other)
      )
    }
  })
})
