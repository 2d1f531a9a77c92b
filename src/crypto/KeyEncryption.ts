import { Context, type Effect } from "effect"
import type { AuthenticationFailed, KeyStoreUnavailable, UnknownKeyId } from "../port/Cipher.ts"

/** What is known of a key-encryption key outside its store. */
export interface KnownKek {
  readonly kek_id: string
  readonly check_value: Uint8Array
}

/** A store of key-encryption keys (KEKs). It wraps data keys (DEKs) and never gives a KEK away. */
export class KeyEncryption extends Context.Service<
  KeyEncryption,
  {
    /** The id of the key that seals now; undefined if the store is empty. */
    readonly primary: () => string | undefined
    /** The keys that the store has now, primary first. */
    readonly keks: () => ReadonlyArray<KnownKek>
    /** Returns nonce(12) | ciphertext | tag(16) of AES-256-GCM, with a new random nonce. */
    readonly wrap: (
      kek_id: string,
      dek: Uint8Array,
      aad: Uint8Array
    ) => Effect.Effect<Uint8Array, UnknownKeyId | KeyStoreUnavailable>
    /** Returns the data key in a buffer that the caller must wipe. One that comes after the caller has left is wiped here. */
    readonly unwrap: (
      kek_id: string,
      wrapped_dek: Uint8Array,
      aad: Uint8Array
    ) => Effect.Effect<Buffer, UnknownKeyId | AuthenticationFailed | KeyStoreUnavailable>
  }
>()("byok/KeyEncryption") {}

type Keys = KeyEncryption["Service"]

/** Combines two stores while credentials move to the first: it seals with the first and opens with both. */
export const makeUnion = (first: Keys, second: Keys): Keys => {
  const storeOf = (kek_id: string) => (first.keks().some((kek) => kek.kek_id === kek_id) ? first : second)
  return {
    primary: first.primary,
    keks: () => [...first.keks(), ...second.keks()],
    wrap: (kek_id, dek, aad) => storeOf(kek_id).wrap(kek_id, dek, aad),
    unwrap: (kek_id, wrapped_dek, aad) => storeOf(kek_id).unwrap(kek_id, wrapped_dek, aad)
  }
}
