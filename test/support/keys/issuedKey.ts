import { createHash } from "node:crypto"

const digits = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"

/** Bit by bit as ISO 3309 defines it, independent of the code under test. */
export const crc32 = (text: string): number => {
  let crc = 0xffffffff
  for (const byte of Buffer.from(text)) {
    crc ^= byte
    for (let bit = 0; bit < 8; bit++) crc = (crc >>> 1) ^ (crc & 1 ? 0xedb88320 : 0)
  }
  return ~crc >>> 0
}

export const fromBase62 = (text: string): bigint =>
  Array.from(text).reduce((value, digit) => value * 62n + BigInt(digits.indexOf(digit)), 0n)

/** A key without its prefix. */
export const withoutPrefix = (key: string): string => key.replace(/^byok_(?:[ma]k|ln)_/, "")

/** What is wrong with the form of an issued key (D41), nothing for a good one. */
export const faultOf = (key: string, kind: "mk" | "ak" | "ln"): string | undefined => {
  const [, body = "", random = "", check = ""] =
    /^(byok_(?:[ma]k|ln)_([0-9A-Za-z]{43}))([0-9A-Za-z]{6})$/.exec(key) ?? []
  if (!key.startsWith(`byok_${kind}_`)) return "prefix"
  if (body === "") return "length or digits"
  if (fromBase62(random) >= 2n ** 256n) return "more than 32 bytes"
  if (fromBase62(check) !== BigInt(crc32(body))) return "CRC-32"
  return undefined
}

/** The hash under which a key is known (D24), made independently of the code under test. */
export const sha256 = (text: string): string => createHash("sha256").update(text, "utf8").digest("hex")
