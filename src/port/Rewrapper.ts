import { Context, type Effect, type Result } from "effect"
import type { SealedKey, SealingContext } from "../domain/SealedKey.ts"
import type { KeyStoreUnavailable, RewrapFailure } from "./Cipher.ts"

/** Rewraps data keys under the primary key of the keyring, without opening what they seal. */
export class Rewrapper extends Context.Service<
  Rewrapper,
  {
    readonly primary: string
    /** The ids of all keys of the keyring, primary first. */
    readonly kek_ids: ReadonlyArray<string>
    /** Counts wraps against the limit of the primary key. Call it before making them. */
    readonly spend: (wraps: number) => Effect.Effect<void, KeyStoreUnavailable>
    /** A data key that cannot be rewrapped is a failed `Result`; only an unavailable key store fails the effect. */
    readonly rewrap: (
      sealed: SealedKey,
      context: SealingContext
    ) => Effect.Effect<Result.Result<Pick<SealedKey, "kek_id" | "wrapped_dek">, RewrapFailure>, KeyStoreUnavailable>
  }
>()("byok/Rewrapper") {}
