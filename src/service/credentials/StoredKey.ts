import { hash, timingSafeEqual } from "node:crypto"
import { Effect, Redacted, Result } from "effect"
import type { SealedKey, SealingContext } from "../../domain/SealedKey.ts"
import type { Cipher, OpenFailure, SealingRefused } from "../../port/Cipher.ts"
import type { Answer } from "../../port/DatabaseFailure.ts"

type Reader = Pick<Cipher["Service"], "read">

/**
 * Decrypts a key. Over HTTP, this only serves to read the region in a key that an update keeps, and to compare a new
 * key with the leaked ones of its account.
 */
export const openKey = ({ read }: Reader, sealed: SealedKey, context: SealingContext) =>
  read(sealed, context, (key) => Redacted.make(key.toString("utf8")))

const digestOf = (bytes: Uint8Array) => hash("sha256", bytes, "buffer")

/** Whether the sealed key equals `key`, compared in constant time. */
export const matchesKey = ({ read }: Reader, sealed: SealedKey, context: SealingContext, key: Redacted.Redacted) =>
  read(sealed, context, (opened) => {
    const candidate = Buffer.from(Redacted.value(key))
    const isSame = timingSafeEqual(digestOf(opened), digestOf(candidate))
    candidate.fill(0)
    return isSame
  })

/** Opens a key under the context `from` and seals it to the context `to`, under a new data key. */
export const resealKey = (
  { read, seal }: Pick<Cipher["Service"], "read" | "seal">,
  sealed: SealedKey,
  from: SealingContext,
  to: SealingContext
): Answer<SealedKey, OpenFailure | SealingRefused> =>
  Effect.suspend((): Answer<SealedKey, OpenFailure | SealingRefused> => {
    const opened = read(sealed, from, (key) => {
      const copy = Buffer.allocUnsafeSlow(key.length)
      copy.set(key)
      return copy
    })
    if (Result.isFailure(opened)) return Effect.fail(opened.failure)
    return Effect.ensuring(
      seal(Redacted.make(opened.success), to),
      Effect.sync(() => opened.success.fill(0))
    )
  })
