import { Context, type Effect } from "effect"
import type { ServiceUnavailable } from "../domain/Errors.ts"
import type { KeyStoreUnavailable } from "./CipherErrors.ts"
import type { RewrapFailure, Rewrapper } from "./Rewrapper.ts"

/** What one batch did. */
export interface RewrappedBatch {
  readonly rewrapped: number
  readonly failed: ReadonlyArray<{ readonly id: string; readonly failure: RewrapFailure }>
  /** Where the next batch begins, none when this was the last one. */
  readonly next: string | undefined
}

/** The wrapped data keys of all accounts, for the rotation of key-encryption keys only. */
export class WrappedKeys extends Context.Service<
  WrappedKeys,
  {
    /**
     * Locks up to `size` credentials that name another key than `primary`, in the order of their ids after `after`, and
     * passes over those that are locked. Of each, `kek_id` and `wrapped_dek` are replaced by what `rewrap` makes of
     * them, unless they have changed; what it refuses stays as it is. All of a batch is stored, or nothing, as
     * when the key store is unavailable. `rewrap` gets the first two bytes of `sealed` only, and may be asked again for
     * the same credential.
     */
    readonly replace: (
      batch: { readonly primary: string; readonly after: string | undefined; readonly size: number },
      rewrap: Rewrapper["Service"]["rewrap"]
    ) => Effect.Effect<RewrappedBatch, ServiceUnavailable | KeyStoreUnavailable>
  }
>()("byok/WrappedKeys") {}
