import { createCipheriv, createHmac } from "node:crypto"

export interface Ingredients {
  readonly kek: Uint8Array
  readonly kek_id: string
  /** DEK(32), nonce of the wrap(12), nonce of the data(12). */
  readonly random: Uint8Array
  readonly context: string
  readonly plaintext: Uint8Array
}

const hmac = (key: Uint8Array, ...parts: ReadonlyArray<Uint8Array>) =>
  createHmac("sha256", key).update(Buffer.concat(parts)).digest()

/** RFC 5869 with an empty salt, for 64 bytes. */
export const hkdf64 = (ikm: Uint8Array, info: Uint8Array) => {
  const prk = hmac(Buffer.alloc(32), ikm)
  const first = hmac(prk, info, Buffer.of(1))
  return Buffer.concat([first, hmac(prk, first, info, Buffer.of(2))])
}

/** nonce | ciphertext | tag */
export const gcm = (key: Uint8Array, nonce: Uint8Array, plaintext: Uint8Array, aad: Uint8Array) => {
  const cipher = createCipheriv("aes-256-gcm", key, nonce)
  cipher.setAAD(aad)
  return Buffer.concat([nonce, cipher.update(plaintext), cipher.final(), cipher.getAuthTag()])
}

/** Sealing format 1 as SECURITY.md specifies it, computed without the code under test. */
export const sealByTheBook = (
  { context, kek, kek_id, plaintext, random }: Ingredients,
  claimed?: { readonly commitment?: Uint8Array; readonly dek?: Uint8Array }
) => {
  const version = Buffer.of(1)
  const suite = Buffer.of(1)
  const [wrapNonce, dataNonce] = [random.subarray(32, 44), random.subarray(44, 56)]
  const dek = claimed?.dek ?? random.subarray(0, 32)
  const okm = hkdf64(dek, Buffer.concat([Buffer.from("byok/v1/"), version, suite]))
  const commitment = claimed?.commitment ?? okm.subarray(32, 64)
  const idLength = Buffer.of(0, 0, 0, kek_id.length)
  const wrapAad = [Buffer.from("wrap"), version, suite, idLength, Buffer.from(kek_id), Buffer.from(context, "utf8")]
  const dataAad = [Buffer.from("data"), version, suite, Buffer.from(context, "utf8"), commitment]
  const box = gcm(okm.subarray(0, 32), dataNonce, plaintext, Buffer.concat(dataAad))
  return {
    kek_id,
    wrapped_dek: gcm(kek, wrapNonce, dek, Buffer.concat(wrapAad)),
    sealed: Buffer.concat([version, suite, commitment, box])
  }
}
