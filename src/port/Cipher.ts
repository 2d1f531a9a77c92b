import { Context, Data, type Redacted, type Result } from "effect"
import type { SealedKey, SealingContext } from "../domain/SealedKey.ts"
import type { Answer } from "./DatabaseFailure.ts"

/** Encrypts (seals) provider keys. A sealed key opens only in the context of its credential. */
export class Cipher extends Context.Service<
  Cipher,
  {
    /** Seals a key under the primary key of the keyring. Asks the database only when no reserved wrap is left. */
    readonly seal: (
      key: Redacted.Redacted<string | Buffer>,
      context: SealingContext
    ) => Answer<SealedKey, SealingRefused>
    /** Passes an opened key to `use` in a buffer, then wipes it. */
    readonly read: <A>(
      sealed: SealedKey,
      context: SealingContext,
      use: (key: Buffer) => A
    ) => Result.Result<A, OpenFailure>
    /** Proves that a sealed key belongs to its context, without opening it. */
    readonly verify: (sealed: SealedKey, context: SealingContext) => Result.Result<void, OpenFailure>
  }
>()("byok/Cipher") {}

/** The primary key of the keyring may not seal, or there is no keyring. */
export class SealingRefused extends Data.TaggedError("SealingRefused")<{ readonly reason: string }> {
  override get message() {
    return `nothing can be sealed: ${this.reason}`
  }
}

export class UnknownKeyId extends Data.TaggedError("UnknownKeyId")<{ readonly kek_id: string }> {
  override get message() {
    return `key ${this.kek_id} is not in the keyring`
  }
}

export class UnsupportedFormat extends Data.TaggedError("UnsupportedFormat") {
  override get message() {
    return "this version does not support its sealing format"
  }
}

/** Sealed key, wrapped data key and context do not belong together. */
export class AuthenticationFailed extends Data.TaggedError("AuthenticationFailed") {
  override get message() {
    return "the credential or its sealed key was altered"
  }
}

export type OpenFailure = UnknownKeyId | UnsupportedFormat | AuthenticationFailed
