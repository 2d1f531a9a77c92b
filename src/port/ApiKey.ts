import { hash } from "node:crypto"
import { crc32 } from "node:zlib"
import { Effect, Redacted } from "effect"
import { SecureRandom } from "effect/crypto"
import { ApiKeyHash } from "../domain/ApiKeyHash.ts"

const digits = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"

const base62 = (value: bigint, length: number) => {
  let text = ""
  for (let rest = value; text.length < length; rest /= 62n) text = digits.charAt(Number(rest % 62n)) + text
  return text
}

/** The hash under which an API key is known (D24). A header's text is its bytes in Latin-1. */
export const hashApiKey = (key: Redacted.Redacted, encoding: "utf8" | "latin1" = "utf8"): ApiKeyHash =>
  ApiKeyHash.make(hash("sha256", Buffer.from(Redacted.value(key), encoding)), { disableChecks: true })

/** Writes 32 random bytes as an API key: prefix, 43 base62 digits, 6 base62 digits of CRC-32 over all before (D41). */
export const formatApiKey = (bytes: Uint8Array, management: boolean): string => {
  const body = (management ? "byok_mk_" : "byok_ak_") + base62(BigInt(`0x${Buffer.from(bytes).toString("hex")}`), 43)
  return body + base62(BigInt(crc32(body)), 6)
}

/** A new API key and its hash. */
export const makeApiKey = (management: boolean) =>
  Effect.gen(function* () {
    const random = yield* SecureRandom.SecureRandom
    const key = Redacted.make(formatApiKey(yield* random.randomBytes(32), management))
    return { key, hash: hashApiKey(key) }
  })
