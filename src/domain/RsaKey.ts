import { type Brand, Result } from "effect"

/**
 * A private RSA key that is safe to compute with: the DER of an RSAPrivateKey (RFC 8017, A.1.2) with numbers whose
 * lengths bound the time of a signature. Nobody has checked that the numbers belong together.
 */
export type RsaKey = Uint8Array & Brand.Brand<"RsaKey">

/** Maximum length of a PEM text: a key of 4096 bits needs 3,300 characters. */
const maxLength = 8192

export const rsaKeyRule = "must be a private RSA key of 2048 to 4096 bits in PEM"

const pem = /^\s*-----BEGIN (RSA )?PRIVATE KEY-----\r?\n([A-Za-z0-9+/=\s]+)\n-----END \1PRIVATE KEY-----\s*$/
const encryptedPem = /^\s*-----BEGIN (ENCRYPTED |RSA PRIVATE KEY-----\r?\nProc-Type: 4,ENCRYPTED)/

/**
 * Parses a private RSA key of 2048 to 4096 bits from PEM, in PKCS #8 or PKCS #1. Fails with a rule for the text. Takes
 * microseconds for any text, because OpenSSL computes with keys of any algorithm and size while parsing them.
 */
export const parseRsaKey = (text: string): Result.Result<RsaKey, string> => {
  if (encryptedPem.test(text)) return Result.fail("must have no passphrase")
  const [, rsa, base64 = ""] = (text.length <= maxLength && pem.exec(text)) || []
  const der = Result.getOrElse(
    Result.try(() => Uint8Array.from(atob(base64), (byte) => byte.charCodeAt(0))),
    () => Uint8Array.of()
  )
  const key = rsa === undefined ? pkcs1In(der) : der
  return key !== undefined && isWithinLimits(numbersIn(key)) ? Result.succeed(key as RsaKey) : Result.fail(rsaKeyRule)
}

const sequence = 0x30
const octetString = 0x04
const integer = 0x02

/** The content of the DER value that bytes begin with, and the bytes after it. No value has more than 65,535 bytes. */
const split = (bytes: Uint8Array, tag: number): readonly [content: Uint8Array, rest: Uint8Array] | undefined => {
  const [actualTag, short = 0, high = 0, low = 0] = bytes
  const isMinimal = short < 0x80 || (short === 0x81 && high >= 0x80) || (short === 0x82 && high > 0)
  const start = short < 0x80 ? 2 : short - 0x80 + 2
  const end = start + (short < 0x80 ? short : short === 0x81 ? high : high * 0x100 + low)
  return actualTag === tag && isMinimal && end <= bytes.length
    ? [bytes.subarray(start, end), bytes.subarray(end)]
    : undefined
}

/** The content of a DER value that is all the bytes. */
const whole = (bytes: Uint8Array | undefined, tag: number): Uint8Array | undefined => {
  const [content, rest] = (bytes && split(bytes, tag)) ?? []
  return rest?.length === 0 ? content : undefined
}

/** Version 0 and the algorithm rsaEncryption of a key in PKCS #8 (RFC 5208). */
const rsaHeader = Uint8Array.of(2, 1, 0, 0x30, 13, 6, 9, 0x2a, 0x86, 0x48, 0x86, 0xf7, 13, 1, 1, 1, 5, 0)

/** The key in PKCS #1 inside one in PKCS #8, which has no attributes. */
const pkcs1In = (der: Uint8Array): Uint8Array | undefined => {
  const content = whole(der, sequence)
  return content !== undefined && rsaHeader.every((byte, index) => content[index] === byte)
    ? whole(content.subarray(rsaHeader.length), octetString)
    : undefined
}

/** The integers of a key in PKCS #1, big-endian; undefined if something else is among them. */
const numbersIn = (key: Uint8Array): ReadonlyArray<Uint8Array> | undefined => {
  const numbers: Array<Uint8Array> = []
  for (let rest = whole(key, sequence); rest?.length !== 0;) {
    const [number, others] = (rest && split(rest, integer)) ?? []
    if (number === undefined) return undefined
    numbers.push(number)
    rest = others
  }
  return numbers
}

/** Whether DER has a positive integer in its fewest bytes. */
const isPositive = ([first = 0x80, second = 0]: Uint8Array) => first < 0x80 && (first > 0 || second >= 0x80)
const isOdd = (number: Uint8Array) => (number.at(-1) ?? 0) % 2 === 1
/** The length in bits of a positive integer. */
const bitsOf = (number: Uint8Array) => number.length * 8 + 24 - Math.clz32(number[0] ?? 0)

/**
 * Whether the numbers are those of a key with two primes, in the order of RFC 8017, and within the limits. A prime and
 * the numbers modulo a prime have at most half as many bits as the modulus, as in every key that is used.
 */
const isWithinLimits = ([version, ...numbers]: ReadonlyArray<Uint8Array> = []): boolean => {
  const [n, e, d, p, q] = numbers
  if (version?.length !== 1 || version[0] !== 0 || numbers.length !== 8 || !numbers.every(isPositive)) return false
  if (n === undefined || e === undefined || d === undefined || p === undefined || q === undefined) return false
  const bits = bitsOf(n)
  return (
    bits >= 2048 &&
    bits <= 4096 &&
    [n, e, p, q].every(isOdd) &&
    bitsOf(e) >= 2 &&
    bitsOf(e) <= 64 &&
    bitsOf(d) <= bits &&
    numbers.slice(3).every((number) => bitsOf(number) <= Math.ceil(bits / 2))
  )
}
