import { Context, type Effect, type Redacted } from "effect"
import type { ServiceUnavailable } from "../domain/Errors.ts"
import type { SealedKey } from "../domain/SealedKey.ts"
import type { SealingContext } from "../domain/SealingContext.ts"
import type { AuthenticationFailed, KeyStoreUnavailable, UnknownKeyId, UnsupportedFormat } from "./CipherErrors.ts"

/** Seals a provider key to its credential: it does not open from another row or with a bound field changed. */
export class Cipher extends Context.Service<
  Cipher,
  {
    readonly seal: (
      key: Redacted.Redacted,
      context: SealingContext
    ) => Effect.Effect<SealedKey, KeyStoreUnavailable | ServiceUnavailable>
    /** Over HTTP, only a repeated create calls this. */
    readonly open: (
      sealed: SealedKey,
      context: SealingContext
    ) => Effect.Effect<Redacted.Redacted, UnknownKeyId | UnsupportedFormat | AuthenticationFailed | KeyStoreUnavailable>
  }
>()("byok/Cipher") {}
