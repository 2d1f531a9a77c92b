import { Schema } from "effect"
import type { Issue } from "./Issue.ts"
import { type Provider, takesRegionInKey } from "./Provider.ts"

/** Data region that the owner declares (section 4.1, `declared_region`). */
export const Region = Schema.Literals(["global", "europe", "us"]).annotate({
  message: "must be global, europe, us or null"
})
export type Region = typeof Region.Type

/** Providers for which any region may be declared although their keys carry none (D30). */
const regionDeclaringProviders: ReadonlySet<string> = new Set<Provider>(["azure"])

const regionIssues = (message: string) => [{ path: ["declared_region"], message }]

/** Checks the declared region against the provider and the region that the key itself names, if any (D29, D30). */
export const regionConflicts = (
  provider: string,
  declared_region: Region | null,
  keyRegion: Region | null
): ReadonlyArray<Issue> => {
  if (declared_region === null || declared_region === keyRegion) return []
  if (!takesRegionInKey(provider)) {
    const mayDeclare = declared_region === "global" || regionDeclaringProviders.has(provider)
    return mayDeclare ? [] : regionIssues("must be global or null for this provider")
  }
  if (keyRegion !== null) return regionIssues("must match the region of the key")
  if (declared_region === "global") return []
  return regionIssues(
    "must be global or null for a key without a region: only a JSON object with api_key and region declares another"
  )
}
