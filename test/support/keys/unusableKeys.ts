import { createPrivateKey, generateKeyPairSync } from "node:crypto"
import { rsaKey } from "./cloudKeys.ts"
import { identifier, integer, pem, sequence, tagged } from "./der.ts"

/** Bytes of a number of a length in bits, of which every byte but the first is odd. */
const number = (bits: number) => {
  const bytes = Buffer.alloc(Math.ceil(bits / 8), 0xc1)
  bytes[0] = 1 << ((bits - 1) % 8)
  return bytes
}

const zero = integer(Buffer.of(0))
const rsaEncryption = [identifier(0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x01), Buffer.of(5, 0)]

/** A private key in PKCS #8, of an algorithm with its parameters. */
const pkcs8 = (algorithm: ReadonlyArray<Uint8Array>, key: Uint8Array) =>
  sequence(zero, sequence(...algorithm), tagged(0x04, key))

interface RsaNumbers {
  readonly n: Uint8Array
  readonly e?: Uint8Array
  readonly d?: Uint8Array
  readonly p?: Uint8Array
  readonly q?: Uint8Array
  readonly qi?: Uint8Array
}

/** An RSA key in PKCS #1 of numbers that are no primes: to find large ones takes a second. */
const rsaKeyOf = ({ e = Buffer.of(1, 0, 1), n, ...numbers }: RsaNumbers) => {
  const half = number(n.length * 4 - 4)
  const { d = n, p = half, q = half, qi = half } = numbers
  return sequence(zero, ...[n, e, d, p, q, half, half, qi].map(integer))
}

/** An RSA key of a length in PKCS #8, of numbers that are no primes. */
export const rsaPem = (bits: number) => pem("PRIVATE KEY", pkcs8(rsaEncryption, rsaKeyOf({ n: number(bits) })))

const good = createPrivateKey(rsaKey.privateKey)
const goodPkcs1 = good.export({ type: "pkcs1", format: "der" })
const goodPkcs8 = good.export({ type: "pkcs8", format: "der" })
const n = number(2048)
const pkcs1Of = (numbers: Partial<RsaNumbers>) => pem("RSA PRIVATE KEY", rsaKeyOf({ n, ...numbers }))
const even = (bits: number) => Buffer.concat([number(bits - 8), Buffer.of(2)])
const exportOf = (pair: { readonly privateKey: ReturnType<typeof createPrivateKey> }) =>
  String(pair.privateKey.export({ type: "pkcs8", format: "pem" }))

const dsa = identifier(0x2a, 0x86, 0x48, 0xce, 0x38, 0x04, 0x01)
const dh = identifier(0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x03, 0x01)
const discrete = (algorithm: Uint8Array, bits: number, count: number) => {
  const parameters = Array.from({ length: count }, () => integer(number(bits)))
  return pem("PRIVATE KEY", pkcs8([algorithm, sequence(...parameters)], integer(number(bits - 8))))
}

/** Private keys that sign no token, by what is wrong with them. OpenSSL computes for seconds to parse some of them. */
export const unusableKeys: Readonly<Record<string, string>> = {
  "DSA of 1024 bits": discrete(dsa, 1024, 3),
  "DSA of an odd size": discrete(dsa, 16_391, 3),
  "DH of an odd size": discrete(dh, 16_391, 2),
  EC: exportOf(generateKeyPairSync("ec", { namedCurve: "P-521" })),
  Ed25519: exportOf(generateKeyPairSync("ed25519")),
  "RSA for PSS only": exportOf(generateKeyPairSync("rsa-pss", { modulusLength: 2048 })),
  "RSA of 1024 bits": rsaPem(1024),
  "RSA of 2047 bits": rsaPem(2047),
  "RSA of 4097 bits": rsaPem(4097),
  "RSA of 8192 bits": rsaPem(8192),
  "RSA of 16384 bits": rsaPem(16_384),
  "RSA of 300000 bits": rsaPem(300_000),
  "RSA with an even modulus": pkcs1Of({ n: even(2048) }),
  "RSA with an even prime": pkcs1Of({ p: even(1024) }),
  "RSA with a prime as long as the modulus": pkcs1Of({ p: n }),
  "RSA with a prime that is zero": pkcs1Of({ q: Buffer.of(0) }),
  "RSA with a private exponent longer than the modulus": pkcs1Of({ d: number(2049) }),
  "RSA with a coefficient of 300000 bits": pkcs1Of({ qi: number(300_000) }),
  "RSA with an exponent of 65 bits": pkcs1Of({ e: number(65) }),
  "RSA with an even exponent": pkcs1Of({ e: Buffer.of(2) }),
  "RSA with the exponent 1": pkcs1Of({ e: Buffer.of(1) }),
  "RSA with a negative number": pem("RSA PRIVATE KEY", sequence(...Array.from({ length: 9 }, () => tagged(2, n)))),
  "RSA with three primes": pem(
    "RSA PRIVATE KEY",
    sequence(integer(Buffer.of(1)), ...Array.from({ length: 9 }, () => integer(n)))
  ),
  "RSA without its coefficient": pem("RSA PRIVATE KEY", sequence(zero, ...Array.from({ length: 7 }, () => integer(n)))),
  "PKCS #1 that PKCS #8 is written above": pem("PRIVATE KEY", goodPkcs1),
  "PKCS #8 that PKCS #1 is written above": pem("RSA PRIVATE KEY", goodPkcs8),
  "DER that was cut": pem("PRIVATE KEY", goodPkcs8.subarray(0, -1)),
  "DER with a byte after it": pem("PRIVATE KEY", Buffer.concat([goodPkcs8, Buffer.of(0)])),
  "DER with a length in more bytes than it needs": pem(
    "RSA PRIVATE KEY",
    Buffer.concat([Buffer.of(0x30, 0x83, 0), goodPkcs1.subarray(2)])
  ),
  "DER of indefinite length": pem("RSA PRIVATE KEY", Buffer.concat([Buffer.of(0x30, 0x80), goodPkcs1.subarray(4)])),
  "no DER": pem("PRIVATE KEY", Buffer.from("fake")),
  "no base64": "-----BEGIN PRIVATE KEY-----\n!\n-----END PRIVATE KEY-----\n",
  "base64 of 200000 characters": pem("PRIVATE KEY", number(1_200_000)),
  "text without an end": `-----BEGIN PRIVATE KEY-----\n${"A\n".repeat(90_000)}`,
  "text that was cut": rsaKey.privateKey.slice(0, 800),
  "line breaks that were escaped twice": rsaKey.privateKey.replaceAll("\n", "\\n"),
  "two keys": rsaKey.privateKey.repeat(2),
  "a public key": rsaKey.publicKey
}

/** Private keys behind a passphrase, by their format. */
export const encryptedKeys = Object.fromEntries(
  (["pkcs8", "pkcs1"] as const).map((type) => [
    type,
    String(good.export({ type, format: "pem", cipher: "aes-256-cbc", passphrase: "p" }))
  ])
)
