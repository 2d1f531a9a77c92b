import { type CipherGCMTypes, createCipheriv, createDecipheriv, type KeyObject } from "node:crypto"

const algorithm: CipherGCMTypes = "aes-256-gcm"
export const nonceLength = 12
const tagLength = 16

/** Fills a buffer with random bytes. Tests that compare whole ciphertexts use fixed bytes. */
export type FillRandom = (target: Buffer) => void

/** How many bytes `encrypt` adds: nonce and tag. */
export const overhead = nonceLength + tagLength

/** Returns a box: nonce(12) | ciphertext | tag(16). Never reuse a nonce with the same key. */
export const encrypt = (key: KeyObject, nonce: Uint8Array, plaintext: Uint8Array, aad: Uint8Array): Buffer => {
  const cipher = createCipheriv(algorithm, key, nonce, { authTagLength: tagLength })
  cipher.setAAD(aad)
  const ciphertext = cipher.update(plaintext)
  cipher.final()
  return Buffer.concat([nonce, ciphertext, cipher.getAuthTag()])
}

/** Decrypts a box of `encrypt`. Returns undefined if key, box and AAD do not belong together. */
export const decrypt = (key: KeyObject, box: Uint8Array, aad: Uint8Array): Buffer | undefined => {
  if (box.length < overhead) return undefined
  const end = box.length - tagLength
  const decipher = createDecipheriv(algorithm, key, box.subarray(0, nonceLength), { authTagLength: tagLength })
  decipher.setAAD(aad)
  decipher.setAuthTag(box.subarray(end))
  const plaintext = decipher.update(box.subarray(nonceLength, end))
  try {
    decipher.final()
    return plaintext
  } catch {
    plaintext.fill(0)
    return undefined
  }
}
