import type { Duration } from "effect"
import type { AccountId, ApiKeyHash, WorkspaceId } from "../../domain/Identifiers.ts"
import type { SearchPosition } from "../../domain/routing/planFor.ts"
import type { Plan } from "../../domain/routing/Plan.ts"
import type { RoutingRequest } from "../../domain/routing/RoutingRequest.ts"

/** Maximum age of the credentials that a plan uses. `now`: as of the start of planning, or newer. */
export type Freshness = "now" | Duration.Duration

/** A request whose API key determines the account, or must be a key of the named one. */
export type KeyRequest = Omit<RoutingRequest, "account_id"> & {
  readonly account_id?: AccountId
  readonly api_key_hash: ApiKeyHash
}

/** A request with its workspace and freshness. */
export interface ResolvedRequest {
  readonly request: RoutingRequest & { readonly workspace_id: WorkspaceId }
  /** In milliseconds. */
  readonly freshness: number
  /** The API key of the request. `confirmed_at`: when the last query that confirmed it began, in monotonic time. */
  readonly key?: { readonly api_key_hash: ApiKeyHash; confirmed_at: number } | undefined
}

/**
 * The plan of a request: which keys to try, in which order. `steps`, `providers` and `retry_at` are computed when one
 * of them is first read, from the health of the keys then. A `Walk` needs none of them: it searches its steps one by
 * one, from `start` on. Do not keep the plan longer than the request: it keeps its pools in memory.
 */
export interface PlannedRequest extends ResolvedRequest, Plan {
  /** Whether the plan had no step when it was made. */
  readonly isEmpty: boolean
  /** Number of credentials in its pools. */
  readonly members: number
  /** Position of the first step, valid while the pools have these versions. */
  readonly start: { readonly versions: string; readonly position: SearchPosition }
}
