import type { Duration } from "effect"
import type { ApiKeyHash, WorkspaceId } from "../../domain/Identifiers.ts"
import type { SearchPosition } from "../../domain/routing/planFor.ts"
import type { Plan } from "../../domain/routing/Plan.ts"
import type { RoutingRequest } from "../../domain/routing/RoutingRequest.ts"

/** Maximum age of the credentials that a plan uses. `now`: as of the start of planning, or newer. */
export type Freshness = "now" | Duration.Duration

/** A request whose API key determines the account. */
export type KeyRequest = Omit<RoutingRequest, "account_id"> & { readonly api_key_hash: ApiKeyHash }

/** A request with its workspace and freshness. */
export interface ResolvedRequest {
  readonly request: RoutingRequest & { readonly workspace_id: WorkspaceId }
  /** In milliseconds. */
  readonly freshness: number
  /**
   * The API key that named the account. `confirmed_at`: when the query that confirmed it began, by the monotonic clock.
   */
  readonly key?: { readonly api_key_hash: ApiKeyHash; readonly confirmed_at: number } | undefined
}

/**
 * The plan of a request: which keys to try, in which order. `steps`, `providers` and `retry_at` are computed when one
 * of them is first read, from the health of the keys then, because a walk needs none of them. Do not keep it longer
 * than the request: it keeps its pools in memory.
 */
export interface PlannedRequest extends ResolvedRequest, Plan {
  readonly isEmpty: boolean
  /** Number of credentials in its pools. */
  readonly members: number
  /** Position of the first step in pools of these versions. */
  readonly start: { readonly versions: string; readonly position: SearchPosition }
}
