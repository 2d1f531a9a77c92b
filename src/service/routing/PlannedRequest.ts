import type { Duration } from "effect"
import type { ApiKeyHash, WorkspaceId } from "../../domain/Identifiers.ts"
import type { Plan } from "../../domain/routing/Plan.ts"
import type { RoutingRequest } from "../../domain/routing/RoutingRequest.ts"

/** How old the pools of a plan may be. `now`: as they are when planning begins, or newer. */
export type Freshness = "now" | Duration.Duration

/** A request of the account that has an API key. */
export type KeyRequest = Omit<RoutingRequest, "account_id"> & { readonly api_key_hash: ApiKeyHash }

/** A plan, its request with the workspace that it is for, and the freshness asked for. Its `providers` say why each key is used or not. */
export interface PlannedRequest extends Plan {
  readonly request: RoutingRequest & { readonly workspace_id: WorkspaceId }
  /** In milliseconds. */
  readonly freshness: number
}
