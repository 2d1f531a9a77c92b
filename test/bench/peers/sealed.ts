import { createCipheriv, createSecretKey, hkdfSync, type KeyObject, randomBytes } from "node:crypto"

const kek_id = "kek-peer"
const kek = createSecretKey(randomBytes(32))
const header = Buffer.from([1, 1])
const info = Buffer.concat([Buffer.from("byok/v1/"), header])
const id = Buffer.from(kek_id)
const wrapHead = Buffer.concat([Buffer.from("wrap"), header, Buffer.from([0, 0, 0, id.length]), id])
const dataHead = Buffer.concat([Buffer.from("data"), header])

const encrypt = (key: KeyObject, nonce: Buffer, plaintext: Buffer, aad: Buffer) => {
  const cipher = createCipheriv("aes-256-gcm", key, nonce, { authTagLength: 16 }).setAAD(aad)
  return Buffer.concat([nonce, cipher.update(plaintext), cipher.final(), cipher.getAuthTag()])
}

/** Sealing format 1, written with `node:crypto` alone. */
export const seal = (plaintext: Buffer, context: Buffer) => {
  const random = randomBytes(56)
  const dek = random.subarray(0, 32)
  const okm = Buffer.from(hkdfSync("sha256", createSecretKey(dek), "", info, 64))
  const commitment = okm.subarray(32)
  const key = createSecretKey(okm.subarray(0, 32))
  const box = encrypt(key, random.subarray(44), plaintext, Buffer.concat([dataHead, context, commitment]))
  const wrapped_dek = encrypt(kek, random.subarray(32, 44), dek, Buffer.concat([wrapHead, context]))
  const sealed = Buffer.concat([header, commitment, box])
  dek.fill(0)
  okm.fill(0)
  return { kek_id, wrapped_dek, sealed }
}
