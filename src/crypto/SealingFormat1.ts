import { createSecretKey, hkdfSync, type KeyObject, randomFillSync, timingSafeEqual } from "node:crypto"
import { Effect } from "effect"
import type { SealedKey } from "../domain/SealedKey.ts"
import {
  AuthenticationFailed,
  type KeyStoreUnavailable,
  type OpenFailure,
  type UnknownKeyId,
  UnsupportedFormat
} from "../port/Cipher.ts"
import { decrypt, encrypt, type FillRandom } from "../runtime/AesGcm.ts"
import type { KeyEncryption } from "./KeyEncryption.ts"
import { onEnd } from "../runtime/onEnd.ts"

const header = Buffer.from([1 /* version */, 1 /* suite: HKDF-SHA-256, AES-256-GCM */])
const commitmentEnd = header.length + 32
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

/** Zero-fills a secret after `use`, even if `use` fails. */
export const wiping = <A, E>(secret: Uint8Array, use: () => Effect.Effect<A, E>) =>
  onEnd(Effect.suspend(use), () => void secret.fill(0))

type Keys = KeyEncryption["Service"]

/**
 * Seals a plaintext to a context under a new DEK, wrapped by the KEK `kek_id`. Encrypts during the call, before the
 * effect runs. `sealed` is version(1) | suite(1) | commitment(32) | nonce(12) | ciphertext | tag(16).
 */
export const seal = (
  keys: Pick<Keys, "wrap">,
  kek_id: string,
  plaintext: Uint8Array,
  context: Uint8Array,
  fill: FillRandom = randomFillSync
): Effect.Effect<SealedKey, UnknownKeyId | KeyStoreUnavailable> => {
  const random = Buffer.allocUnsafeSlow(32 + 12)
  fill(random)
  const [dek, nonce] = [random.subarray(0, 32), random.subarray(32)]
  const sealed = withDerivedKey(dek, (contentKey, commitment) => {
    const box = encrypt(contentKey, nonce, plaintext, dataAad(context, commitment))
    return Buffer.concat([header, commitment, box])
  })
  return wiping(dek, () =>
    Effect.map(keys.wrap(kek_id, dek, wrapAad(kek_id, context)), (wrapped_dek) => ({ kek_id, wrapped_dek, sealed }))
  )
}

/** Unwraps the DEK of a row, if this build supports its version and suite. */
const unwrap = (
  keys: Pick<Keys, "unwrap">,
  { kek_id, sealed, wrapped_dek }: SealedKey,
  context: Uint8Array
): Effect.Effect<Buffer, OpenFailure> =>
  sealed[0] === header[0] && sealed[1] === header[1]
    ? keys.unwrap(kek_id, wrapped_dek, wrapAad(kek_id, context))
    : Effect.fail(new UnsupportedFormat())

/** Rewraps the DEK of a row under the KEK `kek_id`. Reads only the first two bytes of `sealed`, version and suite. */
export const rewrap = (
  keys: Pick<Keys, "unwrap" | "wrap">,
  kek_id: string,
  row: SealedKey,
  context: Uint8Array
): Effect.Effect<Pick<SealedKey, "kek_id" | "wrapped_dek">, OpenFailure> =>
  Effect.flatMap(unwrap(keys, row, context), (dek) =>
    wiping(dek, (): Effect.Effect<Uint8Array, OpenFailure> =>
      dek.length === 32 ? keys.wrap(kek_id, dek, wrapAad(kek_id, context)) : Effect.fail(new AuthenticationFailed())
    )
  ).pipe(Effect.map((wrapped_dek) => ({ kek_id, wrapped_dek })))

/**
 * Passes the content key of a row to `use` if KEK, wrapped DEK, context and commitment belong together. If not, or if
 * `use` returns undefined, fails with `AuthenticationFailed`.
 */
const withVerifiedKey = <A>(
  keys: Pick<Keys, "unwrap">,
  row: SealedKey,
  context: Uint8Array,
  use: (contentKey: KeyObject, commitment: Uint8Array) => A | undefined
): Effect.Effect<A, OpenFailure> =>
  Effect.flatMapEager(unwrap(keys, row, context), (dek) => {
    const commitment = row.sealed.subarray(header.length, commitmentEnd)
    const result =
      dek.length === 32 && commitment.length === 32
        ? withDerivedKey(dek, (key, expected) =>
            timingSafeEqual(commitment, expected) ? use(key, commitment) : undefined
          )
        : undefined
    dek.fill(0)
    return result === undefined ? Effect.fail(new AuthenticationFailed()) : Effect.succeed(result)
  })

/** Decrypts a row. Fails unless its KEK, wrapped DEK, `sealed` and the context belong together. */
export const open = (keys: Pick<Keys, "unwrap">, row: SealedKey, context: Uint8Array) =>
  withVerifiedKey(keys, row, context, (contentKey, commitment) =>
    decrypt(contentKey, row.sealed.subarray(commitmentEnd), dataAad(context, commitment))
  )

/** Verifies that KEK, wrapped DEK, commitment and context belong together, without decrypting the plaintext. */
export const verify = (keys: Pick<Keys, "unwrap">, row: SealedKey, context: Uint8Array) =>
  Effect.mapEager(
    withVerifiedKey(keys, row, context, () => true),
    () => undefined
  )

/**
 * Opens a row under the context `from` and seals its plaintext to the context `to`, under a new DEK and the KEK
 * `kek_id`.
 */
export const reseal = (
  keys: Pick<Keys, "unwrap" | "wrap">,
  kek_id: string,
  row: SealedKey,
  from: Uint8Array,
  to: Uint8Array
): Effect.Effect<SealedKey, OpenFailure> =>
  Effect.flatMap(open(keys, row, from), (plaintext) => wiping(plaintext, () => seal(keys, kek_id, plaintext, to)))
