import { Data } from "effect"

/** The key-encryption key that the row names is not in the keyring. */
export class UnknownKeyId extends Data.TaggedError("UnknownKeyId")<{ readonly kek_id: string }> {}

/** The sealed key has a version or suite that this build does not support. */
export class UnsupportedFormat extends Data.TaggedError("UnsupportedFormat") {}

/** Sealed key, wrapped key and context were not sealed together. */
export class AuthenticationFailed extends Data.TaggedError("AuthenticationFailed") {}

/** The key store is unavailable; `reason` says why. */
export class KeyStoreUnavailable extends Data.TaggedError("KeyStoreUnavailable")<{ readonly reason: string }> {}
