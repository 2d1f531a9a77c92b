import { Data } from "effect"
import type { Outcome } from "../../domain/routing/Outcome.ts"
import type { Step } from "../../domain/routing/Plan.ts"
import type { Seal } from "../../domain/routing/Pool.ts"

/**
 * Why the router does not open a step's key. `changed`: its row changed or vanished after the plan. `on_trial`: another
 * request is trying the key. `no_token`: only signed tokens may leave the process, and the key cannot sign any.
 */
export type Refusal = "changed" | "parked" | "on_trial" | "no_token" | Exclude<Seal, "verified" | "unverified">

/** The router refuses to lease the key of a step. After `changed`, plan again. */
export class LeaseRefused extends Data.TaggedError("LeaseRefused")<{ readonly reason: Refusal }> {}

/**
 * The router cannot read the credentials, or a route cannot open its next attempt: the database is away, or it or this
 * service is overloaded. Answer 503; do not use the operator's key, which a credential may forbid (E21).
 */
export class PoolsUnavailable extends Data.TaggedError("PoolsUnavailable") {}

/** The account has no such workspace, or has deleted it (E19). */
export class UnknownWorkspace extends Data.TaggedError("UnknownWorkspace") {}

/** The API key is unknown or revoked. */
export class UnknownApiKey extends Data.TaggedError("UnknownApiKey") {}

/** The API key has a role that may not route: management or viewer. */
export class ApiKeyMayNotRoute extends Data.TaggedError("ApiKeyMayNotRoute") {}

/** A step that was attempted or refused, and its result. */
export interface Attempted {
  readonly step: Step
  readonly result: Outcome | { readonly _tag: "Refused"; readonly reason: Refusal }
}

/** No step of the plan gave an answer to return. */
export class Exhausted extends Data.TaggedError("Exhausted")<{
  readonly attempts: ReadonlyArray<Attempted>
  /** When the first key may be tried again, in milliseconds since 1970; null if unknown. */
  readonly retry_at: number | null
}> {}
