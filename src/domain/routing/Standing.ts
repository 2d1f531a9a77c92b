/** Why a credential is parked: what the upstream answered, or that its key is known to have leaked. */
export type ParkedCause = "rate_limited" | "quota_exhausted" | "forbidden" | "rejected" | "leaked"

/** Whether a credential may be tried for a model. After a parking it is on probation: one request tries it. */
export type Standing =
  | { readonly _tag: "Free" }
  | { readonly _tag: "Probing" }
  | { readonly _tag: "Parked"; readonly cause: ParkedCause; readonly until: number | null }
