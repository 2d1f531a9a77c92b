import { readFileSync } from "node:fs"
import { join } from "node:path"
import { assert, describe, it } from "@effect/vitest"
import { families, type Family } from "../../src/telemetry/families.ts"

const all: ReadonlyArray<Family> = Object.values(families)

describe("the series", () => {
  it("are those of docs/operating.md, with their types", () => {
    const page = readFileSync(join(import.meta.dirname, "../../docs/operating.md"), "utf8")
    const rows = page.matchAll(/^\| `(\w+)` +\| (counter|gauge|histogram) +\|/gm)
    assert.deepStrictEqual(
      Array.from(rows, ([, name, type]) => `${name} ${type}`).sort(),
      all.map(({ prometheus, type }) => `${prometheus} ${type}`).sort()
    )
  })

  it("differ by the labels that docs/operating.md lists", () => {
    const page = readFileSync(join(import.meta.dirname, "../../docs/operating.md"), "utf8")
    const rows = page.matchAll(/^\| `(\w+)` +\| (?:counter|gauge|histogram) +\| ([^|]*)\|/gm)
    const valuesIn = /: [^;]*|\([^)]*\)/g
    assert.deepStrictEqual(
      new Map(
        Array.from(rows, ([, name = "", cell = ""]) => [
          name,
          Array.from(cell.replace(valuesIn, "").matchAll(/`(\w+)`/g), ([, label]) => label)
        ])
      ),
      new Map(
        all.map(({ attributes, prometheus }) => [prometheus, attributes.map((name) => name.replaceAll(".", "_"))])
      )
    )
  })

  it("have names that Prometheus and OpenTelemetry make of each other", () => {
    const units: Readonly<Record<string, string>> = { s: "_seconds", By: "_bytes" }
    for (const [name, { prometheus, type, unit }] of Object.entries(families)) {
      const suffix = `${units[unit] ?? ""}${type === "counter" ? "_total" : ""}`
      assert.strictEqual(prometheus, `${name.replaceAll(".", "_")}${suffix}`)
    }
  })

  it("have buckets in rising order exactly if they are histograms", () => {
    for (const { bounds, type } of all) {
      assert.strictEqual(bounds !== undefined, type === "histogram")
      assert.deepStrictEqual(
        bounds,
        bounds?.toSorted((one, other) => one - other)
      )
    }
  })
})
