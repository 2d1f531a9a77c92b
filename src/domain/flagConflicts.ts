import type { Issue } from "./Issue.ts"

interface Flags {
  readonly is_fallback: boolean
  readonly is_required: boolean
  readonly is_byok_only: boolean
}

/** What a fallback credential cannot be as well. */
const excluded = ["is_byok_only", "is_required"] as const

/**
 * Rules 2 and 3 of section 4.1 (D31). An update may have given only one of two members that conflict: the issue is then
 * reported there (L5).
 */
export const flagConflicts = (
  flags: Flags,
  given: Partial<Record<keyof Flags, unknown>> = flags
): ReadonlyArray<Issue> =>
  excluded.flatMap((flag) => {
    if (!flags.is_fallback || !flags[flag]) return []
    return given[flag] === undefined
      ? [{ path: ["is_fallback"], message: `cannot be combined with ${flag}` }]
      : [{ path: [flag], message: "cannot be combined with is_fallback" }]
  })
