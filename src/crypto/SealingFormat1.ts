import { createSecretKey, hkdfSync, type KeyObject, randomFillSync, timingSafeEqual } from "node:crypto"
import { Result } from "effect"
import type { SealedKey } from "../domain/SealedKey.ts"
import { AuthenticationFailed, type OpenFailure, UnknownKeyId, UnsupportedFormat } from "../port/Cipher.ts"
import { decrypt, encrypt, type FillRandom, nonceLength } from "../runtime/AesGcm.ts"
import type { Kek, KeyringSnapshot } from "./keyring/Keyring.ts"

const header = Buffer.from([1 /* version */, 1 /* suite: HKDF-SHA-256, AES-256-GCM */])
const commitmentEnd = header.length + 32
const dekLength = 32
const kdfInfo = Buffer.concat([Buffer.from("byok/v1/"), header])
/** An empty buffer, because Node is slower with an empty string. */
const noSalt = new Uint8Array(0)
const wrapLabel = Buffer.from("wrap")
const dataLabel = Buffer.from("data")

const wrapAad = (kek_id: string, context: Uint8Array) => {
  const id = Buffer.from(kek_id)
  const length = Buffer.alloc(4)
  length.writeUInt32BE(id.length)
  return Buffer.concat([wrapLabel, header, length, id, context])
}

const dataAad = (context: Uint8Array, commitment: Uint8Array) => Buffer.concat([dataLabel, header, context, commitment])

/** Derives content key and commitment from a DEK, passes them to `use`, and then zero-fills the derived bytes. */
const withDerivedKey = <A>(dek: Uint8Array, use: (contentKey: KeyObject, commitment: Buffer) => A) => {
  // A KeyObject is much faster than bytes, which Node first tries to parse as a key.
  const okm = Buffer.from(hkdfSync("sha256", createSecretKey(dek), noSalt, kdfInfo, 64))
  const contentKey = createSecretKey(okm.subarray(0, 32))
  try {
    return use(contentKey, okm.subarray(32))
  } finally {
    okm.fill(0)
  }
}

/** Passes a secret to `use`, and then zero-fills it, even if `use` throws. */
export const wiping = <Secret extends Uint8Array, A>(secret: Secret, use: (secret: Secret) => A): A => {
  try {
    return use(secret)
  } finally {
    secret.fill(0)
  }
}

/** Wraps a DEK under a KEK: nonce(12) | ciphertext(32) | tag(16). */
const wrap = ({ kek_id, key }: Kek, dek: Uint8Array, context: Uint8Array, fill: FillRandom) => {
  const nonce = Buffer.allocUnsafeSlow(nonceLength)
  fill(nonce)
  return encrypt(key, nonce, dek, wrapAad(kek_id, context))
}

/**
 * Seals a plaintext to a context under a new DEK, wrapped by the KEK. `sealed` is version(1) | suite(1) |
 * commitment(32) | nonce(12) | ciphertext | tag(16).
 */
export const seal = (
  kek: Kek,
  plaintext: Uint8Array,
  context: Uint8Array,
  fill: FillRandom = randomFillSync
): SealedKey => {
  const random = Buffer.allocUnsafeSlow(dekLength + nonceLength)
  fill(random)
  const nonce = random.subarray(dekLength)
  return wiping(random.subarray(0, dekLength), (dek) => {
    const sealed = withDerivedKey(dek, (contentKey, commitment) => {
      const box = encrypt(contentKey, nonce, plaintext, dataAad(context, commitment))
      return Buffer.concat([header, commitment, box])
    })
    return { kek_id: kek.kek_id, wrapped_dek: wrap(kek, dek, context, fill), sealed }
  })
}

type Keks = KeyringSnapshot["byId"]

/** Passes the DEK of a row to `use`, and then zero-fills it. Fails unless this build supports the row's format. */
const withDek = <A>(
  keks: Keks,
  { kek_id, sealed, wrapped_dek }: SealedKey,
  context: Uint8Array,
  use: (dek: Buffer) => A | undefined
): Result.Result<A, OpenFailure> => {
  if (sealed[0] !== header[0] || sealed[1] !== header[1]) return Result.fail(new UnsupportedFormat())
  const kek = keks.get(kek_id)
  if (kek === undefined) return Result.fail(new UnknownKeyId({ kek_id }))
  const dek = decrypt(kek.key, wrapped_dek, wrapAad(kek_id, context))
  const result = dek && wiping(dek, () => (dek.length === dekLength ? use(dek) : undefined))
  return result === undefined ? Result.fail(new AuthenticationFailed()) : Result.succeed(result)
}

/** Rewraps the DEK of a row under the KEK `to`. Reads only the first two bytes of `sealed`, version and suite. */
export const rewrap = (
  keks: Keks,
  to: Kek,
  row: SealedKey,
  context: Uint8Array,
  fill: FillRandom = randomFillSync
): Result.Result<Pick<SealedKey, "kek_id" | "wrapped_dek">, OpenFailure> =>
  withDek(keks, row, context, (dek) => ({ kek_id: to.kek_id, wrapped_dek: wrap(to, dek, context, fill) }))

/**
 * Passes the content key of a row to `use` if KEK, wrapped DEK, context and commitment belong together. If not, or if
 * `use` returns undefined, fails with `AuthenticationFailed`.
 */
const withVerifiedKey = <A>(
  keks: Keks,
  row: SealedKey,
  context: Uint8Array,
  use: (contentKey: KeyObject, commitment: Uint8Array) => A | undefined
): Result.Result<A, OpenFailure> => {
  const commitment = row.sealed.subarray(header.length, commitmentEnd)
  return withDek(keks, row, context, (dek) =>
    withDerivedKey(dek, (key, expected) =>
      commitment.length === 32 && timingSafeEqual(commitment, expected) ? use(key, commitment) : undefined
    )
  )
}

/** Decrypts a row. Fails unless its KEK, wrapped DEK, `sealed` and the context belong together. */
export const open = (keks: Keks, row: SealedKey, context: Uint8Array) =>
  withVerifiedKey(keks, row, context, (contentKey, commitment) =>
    decrypt(contentKey, row.sealed.subarray(commitmentEnd), dataAad(context, commitment))
  )

/** Verifies that KEK, wrapped DEK, commitment and context belong together, without decrypting the plaintext. */
export const verify = (keks: Keks, row: SealedKey, context: Uint8Array): Result.Result<void, OpenFailure> =>
  Result.map(
    withVerifiedKey(keks, row, context, () => true),
    () => undefined
  )
