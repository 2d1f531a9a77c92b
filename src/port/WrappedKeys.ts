import { Context, type Effect } from "effect"
import type { ServiceUnavailable } from "../domain/Errors.ts"
import type { KeyStoreUnavailable } from "./Cipher.ts"
import type { RewrapFailure, Rewrapper } from "./Rewrapper.ts"

/** What one batch did. */
export interface RewrappedBatch {
  readonly rewrapped: number
  readonly failed: ReadonlyArray<{ readonly id: string; readonly failure: RewrapFailure }>
  /** Where the next batch begins, in the store's own form; undefined after the last one. */
  readonly next: string | undefined
}

/** The wrapped data keys of all accounts. Only for the rotation of key-encryption keys. */
export class WrappedKeys extends Context.Service<
  WrappedKeys,
  {
    /**
     * Locks up to `size` credentials that name a key other than `primary`, after the batch whose `next` is `after`, and
     * skips those that are locked already. Replaces the `kek_id` and `wrapped_dek` of each with the result of `rewrap`,
     * unless they have changed; a credential that `rewrap` refuses stays as it is. A batch is stored as a whole, or not
     * at all if the key store is unavailable. `rewrap` gets only the first two bytes of `sealed` and may be called
     * again for the same credential.
     */
    readonly replace: (
      batch: { readonly primary: string; readonly after: string | undefined; readonly size: number },
      rewrap: Rewrapper["Service"]["rewrap"]
    ) => Effect.Effect<RewrappedBatch, ServiceUnavailable | KeyStoreUnavailable>
  }
>()("byok/WrappedKeys") {}
