import type { Seal } from "../../domain/routing/Pool.ts"
import type { OpenFailure } from "../../port/Cipher.ts"

/** What is known of a row whose key does not open, by why it does not. */
export const seals = {
  AuthenticationFailed: "altered",
  UnknownKeyId: "unknown_key",
  UnsupportedFormat: "unsupported",
  KeyStoreUnavailable: "unavailable"
} as const satisfies Record<OpenFailure["_tag"], Seal>
