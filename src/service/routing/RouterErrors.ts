import { Data } from "effect"
import type { Outcome } from "../../domain/routing/Outcome.ts"
import type { Step } from "../../domain/routing/Plan.ts"
import type { Seal } from "../../domain/routing/Pool.ts"

/** Why a step was not attempted. */
export type Refusal = "changed" | "parked" | "on_trial" | "no_token" | Exclude<Seal, "verified" | "unverified">

/** The step cannot be leased. After `changed`, plan again. */
export class LeaseRefused extends Data.TaggedError("LeaseRefused")<{ readonly reason: Refusal }> {}

/** The database does not answer. Answer 503, and use no shared capacity: a credential may forbid it (E21). */
export class PoolsUnavailable extends Data.TaggedError("PoolsUnavailable") {}

/** The account has no such workspace, or has deleted it (E19). */
export class UnknownWorkspace extends Data.TaggedError("UnknownWorkspace") {}

/** The API key is unknown or revoked. */
export class UnknownApiKey extends Data.TaggedError("UnknownApiKey") {}

/** A management key or a viewer's, which may not route. */
export class ApiKeyMayNotRoute extends Data.TaggedError("ApiKeyMayNotRoute") {}

/** A step and its result. */
export interface Attempted {
  readonly step: Step
  readonly result: Outcome | { readonly _tag: "Refused"; readonly reason: Refusal }
}

/** Every step of the plan failed. */
export class Exhausted extends Data.TaggedError("Exhausted")<{
  readonly attempts: ReadonlyArray<Attempted>
  /** When the first key may be tried again, in milliseconds since 1970; null if unknown. */
  readonly retry_at: number | null
}> {}
