import { Context, type Effect } from "effect"
import type { ServiceUnavailable } from "../domain/Errors.ts"

/** A key-encryption key as the store records it. */
export interface UsedKey {
  readonly kek_id: string
  /** How many credentials name it. */
  readonly credentials: number
  /** How many wraps are reserved for it: no fewer than it has made. */
  readonly wraps: number
  readonly retired: boolean
}

/** Reports how much each key-encryption key is used. */
export class KeyUse extends Context.Service<
  KeyUse,
  {
    /** Every key that was ever registered or that a credential names, ordered by id. */
    readonly list: Effect.Effect<ReadonlyArray<UsedKey>, ServiceUnavailable>
  }
>()("byok/KeyUse") {}
