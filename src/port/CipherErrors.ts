import { Data } from "effect"

/** The key-encryption key that the row names is not in the keyring. */
export class UnknownKeyId extends Data.TaggedError("UnknownKeyId")<{ readonly kek_id: string }> {}

/** The sealed key has a version or suite that this build does not know. */
export class UnsupportedFormat extends Data.TaggedError("UnsupportedFormat") {}

/** Sealed key, wrapped key or context are not those that were sealed together. */
export class AuthenticationFailed extends Data.TaggedError("AuthenticationFailed") {}

/** The key store cannot be used now; `reason` says why. */
export class KeyStoreUnavailable extends Data.TaggedError("KeyStoreUnavailable")<{ readonly reason: string }> {}
