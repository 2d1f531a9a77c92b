import type { Provider } from "../../Provider.ts"

/** What an error of an upstream means. Its source stands above it: the provider's page, or a repository and issue. */
export interface ErrorRule {
  /** The statuses with which it counts; with others, the body may mean something else. */
  readonly statuses: ReadonlyArray<number>
  /** A code of the error, in lower case. Without code and message, the status alone decides. */
  readonly code?: string
  /** How a message of the error begins, if no code tells the error from others. */
  readonly message?: string
  readonly outcome: "RateLimited" | "QuotaExhausted" | "Rejected" | "NotServed" | "UpstreamFailed" | "RequestRefused"
}

export type ErrorRules = Partial<Record<Provider, ReadonlyArray<ErrorRule>>>
