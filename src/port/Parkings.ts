import { Context } from "effect"
import type { AccountId, CredentialId, OwnedCredential } from "../domain/Identifiers.ts"
import type { Parking } from "../domain/routing/CredentialStatus.ts"
import type { Cooldown } from "../domain/routing/Health.ts"
import type { Answer } from "./DatabaseFailure.ts"

/** A cooldown of a key that grew. */
export interface ParkingChange extends OwnedCredential, Omit<Cooldown, "until"> {
  /** The model, or '' for the whole key. */
  readonly model: string
  /** Milliseconds from now to its end, at most an hour; null after a success. */
  readonly remaining: number | null
}

/** Keys that no router is offered, although their credentials allow it. */
export class Parkings extends Context.Service<
  Parkings,
  {
    /**
     * Joins what a router has seen of keys to what is stored, by the database's clock. Only a greater cooldown replaces
     * one, so storing a change twice, or those of several routers in any order, is safe. A change of a replaced key stores
     * nothing, nor one of a key that is marked as leaked. Removes cooldowns of the same credentials that are long over.
     * Answers with the changes of credentials that others have locked: these are not stored.
     */
    readonly store: (changes: ReadonlyArray<ParkingChange>) => Answer<ReadonlyArray<ParkingChange>>
    /** What parks the current keys of credentials now, by the database's clock; of each that of every model first. */
    readonly find: (
      account_id: AccountId,
      ids: ReadonlyArray<CredentialId>
    ) => Answer<ReadonlyMap<CredentialId, ReadonlyArray<Parking>>>
  }
>()("byok/Parkings") {}
