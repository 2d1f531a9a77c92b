import { Effect } from "effect"
import { AuthenticationFailed, type KeyStoreUnavailable, UnknownKeyId } from "../../port/Cipher.ts"
import { makeRequestQueue } from "../../port/FairQueue.ts"
import { nonceLength, overhead } from "../AesGcm.ts"
import type { KeyEncryption } from "../KeyEncryption.ts"
import type { Token } from "./Token.ts"
import { fillRandom } from "../SecureRandomLive.ts"

const wrappedLength = overhead + 32

/** The token serves one call at a time; a few more are on their way. */
const limits = { inProgress: 4, waiting: 1000 }

/** Wraps on a PKCS#11 token; its keys never leave it. */
export const makeTokenEncryption = ({ ask, keks }: Token): KeyEncryption["Service"] => {
  const has = (kek_id: string) => keks.some((kek) => kek.kek_id === kek_id)
  return {
    queue: makeRequestQueue(limits),
    primary: () => keks[0]?.kek_id,
    keks: () => keks,
    wrap: (kek_id, dek, aad) =>
      Effect.suspend((): Effect.Effect<Buffer, UnknownKeyId | KeyStoreUnavailable> => {
        if (!has(kek_id)) return Effect.fail(new UnknownKeyId({ kek_id }))
        const nonce = Buffer.allocUnsafeSlow(nonceLength)
        fillRandom(nonce)
        const answer = ask({ operation: "wrap", kek_id, nonce, input: dek, aad })
        return answer.pipe(
          Effect.map((box) => Buffer.concat([nonce, box])),
          Effect.catchTag("AuthenticationFailed", (failure) => Effect.die(failure))
        )
      }),
    unwrap: (kek_id, wrapped_dek, aad) =>
      Effect.suspend((): Effect.Effect<Buffer, UnknownKeyId | AuthenticationFailed | KeyStoreUnavailable> => {
        if (!has(kek_id)) return Effect.fail(new UnknownKeyId({ kek_id }))
        if (wrapped_dek.length !== wrappedLength) return Effect.fail(new AuthenticationFailed())
        const nonce = wrapped_dek.subarray(0, nonceLength)
        return ask({ operation: "unwrap", kek_id, nonce, input: wrapped_dek.subarray(nonceLength), aad })
      })
  }
}
