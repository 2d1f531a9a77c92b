import { createHmac, createSecretKey, hkdfSync, type KeyObject } from "node:crypto"

/** A key-encryption key (KEK) of the keyring, and the check value that identifies its bytes. */
export interface Kek {
  readonly id: string
  readonly key: KeyObject
  readonly check_value: Uint8Array
}

/** Turns 32 bytes into a KEK and zero-fills them. The check value is 16 bytes of HMAC-SHA-256 over the id. */
export const makeKek = (id: string, bytes: Uint8Array): Kek => {
  const checkKey = new Uint8Array(hkdfSync("sha256", bytes, "", "byok/kcv", 32))
  const check_value = new Uint8Array(createHmac("sha256", checkKey).update(id).digest().subarray(0, 16))
  const key = createSecretKey(bytes)
  checkKey.fill(0)
  bytes.fill(0)
  return { id, key, check_value }
}
