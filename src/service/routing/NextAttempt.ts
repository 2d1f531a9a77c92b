import type { Effect, Scope } from "effect"
import type { AccountId } from "../../domain/Identifiers.ts"
import type { Provider } from "../../domain/Provider.ts"
import type { Health } from "../../domain/routing/Health.ts"
import type { Past } from "../../domain/routing/Past.ts"
import type { Plan, Step } from "../../domain/routing/Plan.ts"
import type { LeasedKey } from "./HealthState.ts"
import type { Lease } from "./Lease.ts"
import type { AnotherAccount, PlanFailure } from "./RouterErrors.ts"
import type { Freshness, ResolvedRequest, RouterRequest } from "./RouterRequest.ts"

/** Opens the next attempt of a request after its past, until the scope closes. */
export type OpenNext = (
  request: RouterRequest,
  past: Past,
  options?: AttemptOptions
) => Effect.Effect<NextAttempt, PlanFailure | AnotherAccount, Scope.Scope>

export interface AttemptOptions {
  /** The account of the earlier attempts. */
  readonly account_id?: AccountId
  readonly freshness?: Freshness
  /** While a request tries a key, only calls with its id get that key. */
  readonly request_id?: string
  /** Whether a trial outlasts the scope, until its report or for 30 seconds. */
  readonly keepTrial?: boolean
  /** Whether to pass over cloud keys that cannot sign a token, as with TOKENS_ONLY. */
  readonly mustSign?: boolean
}

/** An attempt to make; shared steps have no lease. */
export interface OpenAttempt {
  readonly step: Step
  readonly lease: Lease | undefined
}

/** The next attempt of a request; undefined if no step is left. */
export interface NextAttempt {
  readonly attempt: OpenAttempt | undefined
  readonly request: ResolvedRequest
  /** The past, and the keys that were not opened on the way. */
  readonly past: Past
  /** How many credentials the plan decides on. */
  readonly credentials: number
  /** Computes the verdicts on every credential, as of this attempt. */
  readonly plan: () => Plan
  /** Without an attempt, when to retry, in milliseconds since 1970; null if unknown. */
  readonly retry_at: number | null
}

/** The key of an attempt, and its health when the attempt began; a `Lease` is one. */
export interface AttemptedKey {
  readonly terms: LeasedKey & { readonly provider: Provider }
  readonly health: Health
}
