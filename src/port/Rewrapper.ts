import { Context, type Effect, type Result } from "effect"
import type { SealedKey } from "../domain/SealedKey.ts"
import type { SealingContext } from "../domain/SealingContext.ts"
import type { AuthenticationFailed, KeyStoreUnavailable, UnknownKeyId, UnsupportedFormat } from "./CipherErrors.ts"

/** Why a data key cannot be wrapped anew. */
export type RewrapFailure = UnknownKeyId | UnsupportedFormat | AuthenticationFailed

/** Brings data keys under the primary key of the keyring, without opening what is sealed under them. */
export class Rewrapper extends Context.Service<
  Rewrapper,
  {
    /** The id of the primary key. */
    readonly primary: string
    /** The ids of all keys of the keyring, the primary key's first. */
    readonly kek_ids: ReadonlyArray<string>
    /** Counts wraps of the primary key, which has a limit of them; to be done before they are made. */
    readonly spend: (wraps: number) => Effect.Effect<void, KeyStoreUnavailable>
    /** A data key that cannot be wrapped anew is a result; a key store that cannot be asked now is a failure. */
    readonly rewrap: (
      sealed: SealedKey,
      context: SealingContext
    ) => Effect.Effect<Result.Result<Pick<SealedKey, "kek_id" | "wrapped_dek">, RewrapFailure>, KeyStoreUnavailable>
  }
>()("byok/Rewrapper") {}
