import { Context } from "effect"
import type { AccountId, CredentialId, OwnedCredential } from "../domain/Identifiers.ts"
import type { Parking } from "../domain/routing/CredentialStatus.ts"
import type { Cooldown } from "../domain/routing/Health.ts"
import type { Answer } from "./DatabaseFailure.ts"

/** A grown cooldown of a key. */
export interface ParkingChange extends OwnedCredential, Omit<Cooldown, "until"> {
  /** The model, or '' for the whole key. */
  readonly model: string
  /** Milliseconds to its end, at most an hour; null after a success. */
  readonly remaining: number | null
}

/** Stores which keys routers must not use for now. */
export class Parkings extends Context.Service<
  Parkings,
  {
    /**
     * Joins cooldowns to the stored ones, by the database's clock. Idempotent and independent of order. Ignores replaced keys
     * and keys marked as leaked. Removes cooldowns of the same credentials that no longer count. Returns the changes of
     * locked credentials, which are not stored.
     */
    readonly store: (changes: ReadonlyArray<ParkingChange>) => Answer<ReadonlyArray<ParkingChange>>
    /** The parkings of the credentials' current keys, by the database's clock; those of the whole key first. */
    readonly find: (
      account_id: AccountId,
      ids: ReadonlyArray<CredentialId>
    ) => Answer<ReadonlyMap<CredentialId, ReadonlyArray<Parking>>>
  }
>()("byok/Parkings") {}
