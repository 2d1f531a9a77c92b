import { Context, type Effect, type Option } from "effect"
import type { ServiceUnavailable } from "../domain/Errors.ts"
import type { AccountId, CredentialId } from "../domain/Identifiers.ts"
import type { ParkedCause } from "../domain/routing/Health.ts"
import type { FoundKey } from "./LeakedKeys.ts"

/** A parking that began, grew or ended. Times are in milliseconds since 1970. */
export interface ParkingChange {
  readonly account_id: AccountId
  readonly credential_id: CredentialId
  readonly key_version: number
  /** The model, or '' for the whole key. */
  readonly model: string
  readonly cause: Exclude<ParkedCause, "leaked">
  readonly strikes: number
  readonly until: number
  /** The key has succeeded since: the parking, or an earlier one, is over. */
  readonly ended: boolean
}

/** Keys that no router is offered, although their credentials allow it. */
export class Parkings extends Context.Service<
  Parkings,
  {
    /** Ends the mark that the current key of a credential has leaked, if it has one. None if the account has no such credential. */
    readonly clear: (
      account_id: AccountId,
      id: CredentialId
    ) => Effect.Effect<Option.Option<FoundKey>, ServiceUnavailable>
    /**
     * Stores what a router has seen of keys. A stored parking only grows until it is ended, so storing a change twice, or
     * those of several routers in any order, is safe. A change of a replaced key stores nothing, nor one of a key that is
     * marked as leaked. A parking that begins ends those of keys that this one has replaced.
     */
    readonly store: (changes: ReadonlyArray<ParkingChange>) => Effect.Effect<void, ServiceUnavailable>
  }
>()("byok/Parkings") {}
