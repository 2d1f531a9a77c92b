import { readFileSync } from "node:fs"
import { join } from "node:path"
import { series } from "../deploy/series.ts"
import { assert, describe, it } from "../support/it.ts"

describe("the series", () => {
  it("are those of docs/operating.md, with their types and labels", () => {
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

  it("have buckets in rising order exactly if they are histograms", () => {
    for (const { bounds, type } of series.values()) {
      assert.strictEqual(bounds !== undefined, type === "histogram")
      assert.deepStrictEqual(
        bounds,
        bounds?.toSorted((one, other) => one - other)
      )
    }
  })
})
