import type { Duration } from "effect"
import type { ApiKeyHash, WorkspaceId } from "../../domain/Identifiers.ts"
import type { Place } from "../../domain/routing/planFor.ts"
import type { Plan } from "../../domain/routing/Plan.ts"
import type { RoutingRequest } from "../../domain/routing/RoutingRequest.ts"

/** How old the pools of a plan may be. `now`: as they are when planning begins, or newer. */
export type Freshness = "now" | Duration.Duration

/** A request of the account that has an API key. */
export type KeyRequest = Omit<RoutingRequest, "account_id"> & { readonly api_key_hash: ApiKeyHash }

/** A request with the workspace that it is for, and the freshness asked for. */
export interface ResolvedRequest {
  readonly request: RoutingRequest & { readonly workspace_id: WorkspaceId }
  /** In milliseconds. */
  readonly freshness: number
  /** The API key that named the account, and when the database confirmed it last, by the monotonic clock. */
  readonly key?: { readonly api_key_hash: ApiKeyHash; readonly confirmed_at: number } | undefined
}

/**
 * The plan of a request as its pools were. Its `steps`, `providers` and `retry_at` are made when one of them is first read, by
 * what is known of the keys then. That takes as long as the pools are large, and a walk needs none of them. Let go of it with
 * the request: it holds its pools.
 */
export interface PlannedRequest extends ResolvedRequest, Plan {
  readonly isEmpty: boolean
  /** How many credentials its pools have. */
  readonly members: number
  /** Where the first step stands, in pools of these versions. */
  readonly start: { readonly versions: string; readonly place: Place }
}
