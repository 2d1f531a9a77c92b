/** What an attempt says about the credential it used. Only a rate limit says when to come back, in milliseconds. */
export type Outcome =
  | { readonly _tag: "Succeeded" }
  | { readonly _tag: "RateLimited"; readonly retry_after: number | null }
  | { readonly _tag: "QuotaExhausted" }
  | { readonly _tag: "Rejected" }
  | { readonly _tag: "Forbidden" }
  | { readonly _tag: "UpstreamFailed" }
  | { readonly _tag: "RequestRefused" }
  | { readonly _tag: "Abandoned" }
