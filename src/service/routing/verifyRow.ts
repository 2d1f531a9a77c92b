import { Effect } from "effect"
import type { AccountId } from "../../domain/Identifiers.ts"
import type { Seal } from "../../domain/routing/Pool.ts"
import type { Cipher, OpenFailure, PreparedKey } from "../../port/Cipher.ts"
import type { PoolRow } from "../../port/CredentialPools.ts"
import { withKeyStoreTimeout } from "../withKeyStoreTimeout.ts"

/** Says whether a row of an account's pool is what was sealed and, if it is, what opens its key. */
export type VerifyRow = (
  account_id: AccountId,
  row: PoolRow
) => Effect.Effect<{ readonly seal: Seal; readonly prepared?: PreparedKey }>

/** The seal of a row whose key does not open, by the error. */
export const sealStatusByError = {
  AuthenticationFailed: "altered",
  UnknownKeyId: "unknown_key",
  UnsupportedFormat: "unsupported",
  KeyStoreUnavailable: "unavailable"
} as const satisfies Record<OpenFailure["_tag"], Seal>

/** Unwraps the data key of a row under its whole policy, which proves that the policy is what was sealed (E16). */
export const verifyRow =
  (prepare: Cipher["Service"]["prepare"]): VerifyRow =>
  (account_id, { credential, sealed }) =>
    Effect.match(withKeyStoreTimeout(prepare(sealed, { ...credential, account_id })), {
      onSuccess: (prepared) => ({ seal: "verified", prepared }),
      onFailure: ({ _tag }) => ({ seal: sealStatusByError[_tag] })
    })
