import type { Duration } from "effect"
import type { AccountId, ApiKeyHash, WorkspaceId } from "../../domain/Identifiers.ts"
import type { Plan } from "../../domain/routing/Plan.ts"
import type { RoutingRequest } from "../../domain/routing/RoutingRequest.ts"

/** A request of an account, or one whose API key determines the account. */
export type RouterRequest = RoutingRequest | KeyRequest

/** A request whose API key determines the account, or must be a key of the named one. */
export type KeyRequest = Omit<RoutingRequest, "account_id"> & {
  readonly account_id?: AccountId
  readonly api_key_hash: ApiKeyHash
}

/** A request with its account and workspace. */
export type ResolvedRequest = RoutingRequest & { readonly workspace_id: WorkspaceId }

/** Maximum age of the credentials that a plan uses. `now`: as of the start of planning, or newer. */
export type Freshness = "now" | Duration.Duration

/** The plan of a request: which keys to try in which order, and why not others. */
export interface RequestPlan extends Plan {
  readonly request: ResolvedRequest
}
