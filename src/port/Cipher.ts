import { Context, Data, type Effect, type Redacted } from "effect"
import type { SealedKey, SealingContext } from "../domain/SealedKey.ts"
import type { Answer } from "./DatabaseFailure.ts"

/**
 * Encrypts (seals) provider keys. A sealed key opens only in the context of its credential. Each call waits at most
 * three seconds for the key store.
 */
export class Cipher extends Context.Service<
  Cipher,
  {
    readonly seal: (key: Redacted.Redacted, context: SealingContext) => Answer<SealedKey, KeyStoreUnavailable>
    /**
     * Decrypts a key. Over HTTP, this only serves to read the region in a key that an update keeps, and to compare a
     * new key with the leaked ones of its account.
     */
    readonly open: (sealed: SealedKey, context: SealingContext) => Effect.Effect<Redacted.Redacted, OpenFailure>
    /** Whether the sealed key equals `key`, compared in constant time. */
    readonly matches: (
      sealed: SealedKey,
      context: SealingContext,
      key: Redacted.Redacted
    ) => Effect.Effect<boolean, OpenFailure>
    /** Passes an opened key to `use` in a buffer, then wipes it. Synchronous if the key store is in this process. */
    readonly read: <A>(
      sealed: SealedKey,
      context: SealingContext,
      use: (key: Buffer) => A
    ) => Effect.Effect<A, OpenFailure>
    /** Proves that a sealed key belongs to its context, without opening it. */
    readonly verify: (sealed: SealedKey, context: SealingContext) => Effect.Effect<void, OpenFailure>
    /** Opens a key under one context and seals it to another, under a new data key. */
    readonly reseal: (sealed: SealedKey, from: SealingContext, to: SealingContext) => Answer<SealedKey, OpenFailure>
  }
>()("byok/Cipher") {}

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

export class KeyStoreUnavailable extends Data.TaggedError("KeyStoreUnavailable")<{ readonly reason: string }> {
  override get message() {
    return `the key store is unavailable: ${this.reason}`
  }
}

/** Failures that concern one credential, while the key store itself is available. */
export type RewrapFailure = UnknownKeyId | UnsupportedFormat | AuthenticationFailed

export type OpenFailure = RewrapFailure | KeyStoreUnavailable
