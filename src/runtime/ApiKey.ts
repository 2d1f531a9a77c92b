import { hash } from "node:crypto"
import { crc32 } from "node:zlib"
import { Effect, Redacted } from "effect"
import { SecureRandom } from "effect/crypto"
import { ApiKeyHash } from "../domain/Identifiers.ts"
import type { ApiKeyRole } from "../domain/Principal.ts"

/** Makes a random API key and its hash. */
export const makeApiKey = Effect.fnUntraced(function* (role: ApiKeyRole) {
  const random = yield* SecureRandom.SecureRandom
  const key = Redacted.make(formatApiKey(yield* random.randomBytes(32), role))
  return { key, hash: hashApiKey(key) }
})

/** The hash that identifies an API key (D24) or link token. Node decodes HTTP headers as `latin1`. */
export const hashApiKey = (key: Redacted.Redacted, encoding: "utf8" | "latin1" = "utf8"): ApiKeyHash =>
  ApiKeyHash.make(hash("sha256", Buffer.from(Redacted.value(key), encoding)), { disableChecks: true })

/** Formats 32 random bytes as an API key. */
export const formatApiKey = (bytes: Uint8Array, role: ApiKeyRole) =>
  formatToken(bytes, role === "management" ? "byok_mk_" : "byok_ak_")

/** Formats 32 random bytes as the token of a link. */
export const formatLinkToken = (bytes: Uint8Array) => formatToken(bytes, "byok_ln_")

/** A token has a prefix, 43 base62 digits for its 32 bytes, and the CRC-32 of both in 6 base62 digits (D41). */
const formatToken = (bytes: Uint8Array, prefix: "byok_mk_" | "byok_ak_" | "byok_ln_"): string => {
  const body = prefix + base62(BigInt(`0x${Buffer.from(bytes).toString("hex")}`), 43)
  return body + checksum(body)
}

/** Whether a token has the form of an issued API key or link token but a wrong checksum (D41). */
export const hasWrongChecksum = (token: string): boolean =>
  issuedForm.test(token) && checksum(token.slice(0, -6)) !== token.slice(-6)

const issuedForm = /^byok_(?:[am]k|ln)_[0-9A-Za-z]{49}$/

const checksum = (body: string) => base62(BigInt(crc32(body)), 6)

const base62 = (value: bigint, length: number) => {
  let text = ""
  for (let rest = value; text.length < length; rest /= 62n) text = digits.charAt(Number(rest % 62n)) + text
  return text
}

const digits = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
