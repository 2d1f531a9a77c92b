import { readFileSync } from "node:fs"
import { join } from "node:path"
import { multiSecretProviders, Provider, signsTokens, takesRegionInKey } from "../../src/domain/Provider.ts"
import { regionConflicts } from "../../src/domain/Region.ts"
import { assert, describe, it } from "../support/it.ts"

const page = readFileSync(join(import.meta.dirname, "../../docs/concepts.md"), "utf8")
const [, section = ""] = /^## Providers\n(.*)/ms.exec(page) ?? []
const slugsIn = (text: string) => Array.from(text.matchAll(/`([^`]+)`/g), ([, slug = ""]) => slug)
const [, others = ""] = /^The others are (.*)/ms.exec(section) ?? []

/** The cells of each provider's row. */
const documented = Array.from(
  section.matchAll(/^\| (.*?) +\| (.*?) +\| (.*?) +\| (yes|no) +\|$/gm),
  ([, names = "", ...cells]) =>
    (names === "the others" ? slugsIn(others) : slugsIn(names)).map((slug) => [slug, ...cells] as const)
).flat()

const regionsOf = (provider: string) => {
  if (takesRegionInKey(provider)) return "the key's, `global`"
  return regionConflicts(provider, "europe", null).length === 0 ? "any" : "`global`"
}

describe("the table of providers in docs/concepts.md (D27, D30, D57)", () => {
  it("has each provider once, with the key material, regions and tokens of the code", () => {
    assert.deepStrictEqual(
      documented
        .map(([slug, json, regions, tokens]) => [slug, json !== "none", regions, tokens])
        .sort(([one = ""], [other = ""]) => (one < other ? -1 : 1)),
      Provider.literals
        .map((slug) => [
          slug,
          takesRegionInKey(slug) || multiSecretProviders.includes(slug),
          regionsOf(slug),
          signsTokens(slug) ? "yes" : "no"
        ])
        .sort(([one = ""], [other = ""]) => (one < other ? -1 : 1))
    )
  })
})
