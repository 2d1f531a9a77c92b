import { Effect } from "effect"
import { AuthenticationFailed, UnknownKeyId } from "../../port/Cipher.ts"
import { decrypt, encrypt } from "../AesGcm.ts"
import type { KeyEncryption } from "../KeyEncryption.ts"
import type { Keyring } from "./Keyring.ts"
import { type FillRandom, fillRandom } from "../SecureRandomLive.ts"

/** Wraps synchronously in this process, with the keys that the keyring has at the time. */
export const makeKeyringEncryption = (
  { current }: Pick<Keyring["Service"], "current">,
  fill: FillRandom = fillRandom
): KeyEncryption["Service"] => ({
  primary: () => current().primary?.id,
  keks: () => Array.from(current().byId.values(), ({ check_value, id }) => ({ kek_id: id, check_value })),
  wrap: (kek_id, dek, aad) =>
    Effect.suspend((): Effect.Effect<Uint8Array, UnknownKeyId> => {
      const kek = current().byId.get(kek_id)
      if (kek === undefined) return Effect.fail(new UnknownKeyId({ kek_id }))
      const nonce = Buffer.allocUnsafeSlow(12)
      fill(nonce)
      return Effect.succeed(encrypt(kek.key, nonce, dek, aad))
    }),
  unwrap: (kek_id, wrapped_dek, aad) =>
    Effect.suspend((): Effect.Effect<Buffer, UnknownKeyId | AuthenticationFailed> => {
      const kek = current().byId.get(kek_id)
      if (kek === undefined) return Effect.fail(new UnknownKeyId({ kek_id }))
      const dek = decrypt(kek.key, wrapped_dek, aad)
      return dek === undefined ? Effect.fail(new AuthenticationFailed()) : Effect.succeed(dek)
    })
})
