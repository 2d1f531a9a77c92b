import { Context } from "effect"
import type { AccountId, CredentialId, CredentialReference } from "../domain/Identifiers.ts"
import type { Parking } from "../domain/routing/CredentialStatus.ts"
import type { Cooldown } from "../domain/routing/Health.ts"
import type { Answer } from "./DatabaseFailure.ts"

/** Stores parkings: cooldowns during which routers do not use a key, for one model or for all. */
export class Parkings extends Context.Service<
  Parkings,
  {
    /**
     * Merges cooldowns into the stored ones, by the database's clock. Idempotent and independent of order. Ignores
     * those of replaced keys and of keys marked as leaked. Deletes the credentials' cooldowns that expired hours ago.
     * Skips credentials that another transaction has locked, and returns their changes.
     */
    readonly store: (changes: ReadonlyArray<ParkingChange>) => Answer<ReadonlyArray<ParkingChange>>
    /** The parkings of the credentials' current keys, by the database's clock; those of the whole key first. */
    readonly find: (
      account_id: AccountId,
      ids: ReadonlyArray<CredentialId>
    ) => Answer<ReadonlyMap<CredentialId, ReadonlyArray<Parking>>>
  }
>()("byok/Parkings") {}

/** A cooldown to merge into the stored one: begun, extended, or ended by a success. */
export interface ParkingChange extends CredentialReference, Omit<Cooldown, "until"> {
  /** The model, or '' for the whole key. */
  readonly model: string
  /** Milliseconds to its end, at most an hour; null after a success. */
  readonly remaining: number | null
}
