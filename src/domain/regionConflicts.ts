import type { Issue } from "./Issue.ts"
import { mayDeclare, takesKeyMaterial } from "./Provider.ts"
import type { Region } from "./Region.ts"

const refused = (message: string) => [{ path: ["declared_region"], message }]

/** Whether provider and key allow the declared region (D29, D30); `keyRegion` is the region of the key. */
export const regionConflicts = (
  provider: string,
  declared_region: Region | null,
  keyRegion: Region | null
): ReadonlyArray<Issue> => {
  if (!takesKeyMaterial(provider)) {
    return mayDeclare(provider, declared_region) ? [] : refused("must be global or null for this provider")
  }
  if (declared_region === null || declared_region === keyRegion) return []
  if (keyRegion !== null) return refused("must match the region of the key")
  if (declared_region === "global") return []
  return refused(
    "must be global or null for a key without a region: only a JSON object with api_key and region declares another"
  )
}
