import { Context, type Effect } from "effect"
import type { AuthenticationFailed, KeyStoreUnavailable, UnknownKeyId } from "../port/CipherErrors.ts"

/** What may be known of a key-encryption key outside its store. */
export interface KnownKek {
  readonly kek_id: string
  readonly check_value: Uint8Array
}

/** A store of key-encryption keys, which wraps data keys (DEK) under them and never hands a key out. */
export class KeyEncryption extends Context.Service<
  KeyEncryption,
  {
    /** The id of the key that seals now, none if the store is empty. */
    readonly primary: () => string | undefined
    /** The keys that the store has now, the primary key first. */
    readonly keks: () => ReadonlyArray<KnownKek>
    /** nonce(12) | AES-256-GCM under the key | tag(16), with a new random nonce. */
    readonly wrap: (
      kek_id: string,
      dek: Uint8Array,
      aad: Uint8Array
    ) => Effect.Effect<Uint8Array, UnknownKeyId | KeyStoreUnavailable>
    /** The data key, a buffer that is the caller's to wipe. */
    readonly unwrap: (
      kek_id: string,
      wrapped_dek: Uint8Array,
      aad: Uint8Array
    ) => Effect.Effect<Buffer, UnknownKeyId | AuthenticationFailed | KeyStoreUnavailable>
  }
>()("byok/KeyEncryption") {}
