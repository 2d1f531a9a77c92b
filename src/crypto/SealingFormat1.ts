import { createSecretKey, hkdfSync, timingSafeEqual } from "node:crypto"
import { Result } from "effect"
import type { SealedKey } from "../domain/SealedKey.ts"
import { AuthenticationFailed, UnsupportedFormat } from "../service/CipherErrors.ts"
import { decrypt, encrypt } from "./AesGcm.ts"
import type { Kek } from "./Kek.ts"
import { RandomBlock } from "./RandomBlock.ts"

const header = Buffer.from([1 /* version */, 1 /* suite: HKDF-SHA-256, AES-256-GCM */])
const commitmentEnd = header.length + 32
const kdfInfo = Buffer.concat([Buffer.from("byok/v1/"), header])
const wrapLabel = Buffer.from("wrap")
const dataLabel = Buffer.from("data")

const wrapAad = (kek_id: string, context: Uint8Array) => {
  const id = Buffer.from(kek_id)
  const length = Buffer.alloc(4)
  length.writeUInt32BE(id.length)
  return Buffer.concat([wrapLabel, header, length, id, context])
}

const dataAad = (context: Uint8Array, commitment: Uint8Array) => Buffer.concat([dataLabel, header, context, commitment])

/** Derives data key and commitment from a data-encryption key, hands them to `use` and zero-fills both. */
const withDataKey = <A>(
  dek: Uint8Array,
  use: (dataKey: ReturnType<typeof createSecretKey>, commitment: Buffer) => A
) => {
  // A key object is taken at once; for bytes Node first finds out, slowly, that they are none.
  const okm = Buffer.from(hkdfSync("sha256", createSecretKey(dek), "", kdfInfo, 64))
  dek.fill(0)
  const key = createSecretKey(okm.subarray(0, 32))
  try {
    return use(key, okm.subarray(32))
  } finally {
    okm.fill(0)
  }
}

/** Where the random bytes come from; golden ciphertexts are made with fixed ones. */
export type FillRandom = (target: Buffer) => void

const fillRandom: FillRandom = new RandomBlock(64 * 1024).fill

/** Seals a plaintext to a context under a data key of its own, wrapped by `kek`. */
export const seal = (
  kek: Kek,
  plaintext: Uint8Array,
  context: Uint8Array,
  fill: FillRandom = fillRandom
): SealedKey => {
  const random = Buffer.allocUnsafeSlow(32 + 12 + 12)
  fill(random)
  const dek = random.subarray(0, 32)
  const wrapped_dek = encrypt(kek.key, random.subarray(32, 44), dek, wrapAad(kek.id, context))
  return withDataKey(dek, (dataKey, commitment) => {
    const box = encrypt(dataKey, random.subarray(44), plaintext, dataAad(context, commitment))
    return { kek_id: kek.id, wrapped_dek, sealed: Buffer.concat([header, commitment, box]) }
  })
}

/**
 * The data key of a sealed key, wrapped by `to` instead of `from`; it is in the clear for that moment only. Of `sealed`
 * its first two bytes, version and suite, are enough: what is sealed under the data key stays as it is.
 */
export const rewrap = (
  from: Kek,
  to: Kek,
  { sealed, wrapped_dek }: Pick<SealedKey, "sealed" | "wrapped_dek">,
  context: Uint8Array,
  fill: FillRandom = fillRandom
): Result.Result<Pick<SealedKey, "kek_id" | "wrapped_dek">, UnsupportedFormat | AuthenticationFailed> => {
  if (sealed[0] !== header[0] || sealed[1] !== header[1]) return Result.fail(new UnsupportedFormat())
  const dek = decrypt(from.key, wrapped_dek, wrapAad(from.id, context))
  if (dek === undefined) return Result.fail(new AuthenticationFailed())
  try {
    if (dek.length !== 32) return Result.fail(new AuthenticationFailed())
    const nonce = Buffer.allocUnsafeSlow(12)
    fill(nonce)
    return Result.succeed({ kek_id: to.id, wrapped_dek: encrypt(to.key, nonce, dek, wrapAad(to.id, context)) })
  } finally {
    dek.fill(0)
  }
}

/** The plaintext, if `kek`, both ciphertexts and the context are exactly those of one `seal`. */
export const open = (
  kek: Kek,
  { sealed, wrapped_dek }: Pick<SealedKey, "sealed" | "wrapped_dek">,
  context: Uint8Array
): Result.Result<Buffer, UnsupportedFormat | AuthenticationFailed> => {
  if (sealed[0] !== header[0] || sealed[1] !== header[1]) return Result.fail(new UnsupportedFormat())
  const dek = decrypt(kek.key, wrapped_dek, wrapAad(kek.id, context))
  if (dek === undefined || dek.length !== 32 || sealed.length < commitmentEnd) {
    return Result.fail(new AuthenticationFailed())
  }
  return withDataKey(dek, (dataKey, expected) => {
    const commitment = sealed.subarray(header.length, commitmentEnd)
    const plaintext = timingSafeEqual(commitment, expected)
      ? decrypt(dataKey, sealed.subarray(commitmentEnd), dataAad(context, commitment))
      : undefined
    return plaintext === undefined ? Result.fail(new AuthenticationFailed()) : Result.succeed(plaintext)
  })
}
