import { Context, type Effect } from "effect"
import type { ServiceUnavailable } from "../domain/Errors.ts"

/** A key-encryption key as the store knows it. */
export interface UsedKey {
  readonly kek_id: string
  /** How many credentials name it. */
  readonly credentials: number
  /** How many wraps have been set aside for it: at least those that it made. */
  readonly wraps: number
  readonly retired: boolean
}

/** How much each key-encryption key is used. */
export class KeyUse extends Context.Service<
  KeyUse,
  {
    /** Every key that was ever registered or that a credential names, by id. */
    readonly list: Effect.Effect<ReadonlyArray<UsedKey>, ServiceUnavailable>
  }
>()("byok/KeyUse") {}
