import { Data } from "effect"
import type { Past } from "../../domain/routing/Past.ts"
import type { ProviderPlan } from "../../domain/routing/Plan.ts"

/**
 * The router cannot read the credentials: the database is away, or it or this service is overloaded. Answer 503; do not
 * use the operator's key, which a credential may forbid (E21).
 */
export class PoolsUnavailable extends Data.TaggedError("PoolsUnavailable") {}

/** The account has no such workspace, or has deleted it (E19). */
export class UnknownWorkspace extends Data.TaggedError("UnknownWorkspace") {}

/** The API key is unknown or revoked. */
export class UnknownApiKey extends Data.TaggedError("UnknownApiKey") {}

/** The API key has a role that may not route: management or viewer. */
export class ApiKeyMayNotRoute extends Data.TaggedError("ApiKeyMayNotRoute") {}

/** The providers of the request have more than `maxCredentials` credentials together. */
export class TooManyCredentials extends Data.TaggedError("TooManyCredentials") {}

/** The API key of the request names another account than the request's earlier attempts. */
export class AnotherAccount extends Data.TaggedError("AnotherAccount") {}

/** Why a request cannot be planned. */
export type PlanFailure = PoolsUnavailable | UnknownWorkspace | UnknownApiKey | ApiKeyMayNotRoute | TooManyCredentials

/** No step gave an answer to return. */
export class Exhausted extends Data.TaggedError("Exhausted")<{
  /** The attempts, and the steps whose keys were not opened. */
  readonly past: Past
  /** The verdicts on every credential, as of the last attempt. */
  readonly providers: ReadonlyArray<ProviderPlan>
  /** When the first key may be tried again, in milliseconds since 1970; null if unknown. */
  readonly retry_at: number | null
}> {}
