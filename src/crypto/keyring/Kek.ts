import { createHmac, createSecretKey, hkdfSync, type KeyObject } from "node:crypto"

/** A key-encryption key of the keyring, and the value by which its bytes are recognised. */
export interface Kek {
  readonly id: string
  readonly key: KeyObject
  readonly check_value: Uint8Array
}

/** Takes 32 bytes over as a KEK and zero-fills them. The check value is HMAC-SHA-256 of the id, 16 bytes. */
export const makeKek = (id: string, bytes: Uint8Array): Kek => {
  const checkKey = new Uint8Array(hkdfSync("sha256", bytes, "", "byok/kcv", 32))
  const check_value = new Uint8Array(createHmac("sha256", checkKey).update(id).digest().subarray(0, 16))
  const key = createSecretKey(bytes)
  checkKey.fill(0)
  bytes.fill(0)
  return { id, key, check_value }
}
