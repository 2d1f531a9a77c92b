import { Data } from "effect"
import type { Outcome } from "../../domain/routing/Outcome.ts"
import type { Step } from "../../domain/routing/Plan.ts"
import type { Seal } from "../../domain/routing/Pool.ts"

/** Why a step was not attempted: the credential or what it allows has changed, or its key does not open or sign. */
export type Refusal = "changed" | "parked" | "on_trial" | "no_token" | Exclude<Seal, "verified" | "unverified">

/** The step cannot be leased. After `changed`, plan again. */
export class LeaseRefused extends Data.TaggedError("LeaseRefused")<{ readonly reason: Refusal }> {}

/** The database cannot be asked what is allowed. Answer 503, and use no shared capacity: it may be forbidden (E21). */
export class PoolsUnavailable extends Data.TaggedError("PoolsUnavailable") {}

/** The account has no such workspace, or has deleted it (E19). */
export class UnknownWorkspace extends Data.TaggedError("UnknownWorkspace") {}

/** No account has such an API key, or it was revoked. */
export class UnknownApiKey extends Data.TaggedError("UnknownApiKey") {}

/** The role of the API key allows no routes: it is a management key or a viewer's. */
export class ApiKeyMayNotRoute extends Data.TaggedError("ApiKeyMayNotRoute") {}

/** What became of a step. */
export interface Attempted {
  readonly step: Step
  readonly result: Outcome | { readonly _tag: "Refused"; readonly reason: Refusal }
}

/** No step of the plan gave an answer to return. */
export class Exhausted extends Data.TaggedError("Exhausted")<{
  readonly attempts: ReadonlyArray<Attempted>
  /** When the first key may be tried again, in milliseconds since 1970; null if that is not known. */
  readonly retry_at: number | null
}> {}
