import { createPrivateKey } from "node:crypto"
import { Arbitrary, Result } from "effect"
import { parseRsaKey } from "../../src/domain/RsaKey.ts"
import { mint } from "../../src/service/tokens/mint.ts"
import { rsaKey } from "../support/keys/cloudKeys.ts"
import { pem } from "../support/keys/der.ts"
import { encryptedKeys, rsaPem, unusableKeys } from "../support/keys/unusableKeys.ts"
import { elementOf, integer } from "../support/memory/arbitraries.ts"
import { assert, describe, it } from "../support/it.ts"

const rule = "must be a private RSA key of 2048 to 4096 bits in PEM"
const pkcs1Of = (text: string) => createPrivateKey(text).export({ type: "pkcs1", format: "der" })
const good = rsaKey.privateKey
const goodPkcs1 = String(createPrivateKey(good).export({ type: "pkcs1", format: "pem" }))

describe("a private RSA key", () => {
  it.for([
    ["PKCS #8", good],
    ["PKCS #1", goodPkcs1],
    ["lines that end in CRLF", good.replaceAll("\n", "\r\n")],
    ["white space around it", ` \r\n\t${good}\n `],
    ["one line of base64", pem("RSA PRIVATE KEY", pkcs1Of(good)).replaceAll(/(?<=\w)\n(?=[\w+/])/g, "")],
    ...[2048, 2049, 3072, 4095, 4096].map((bits) => [`${bits} bits`, rsaPem(bits)] as const)
  ] as const)("in PEM is parsed to the DER of PKCS #1 that OpenSSL reads in it: %s", ([, text]) => {
    assert.deepStrictEqual(Buffer.from(Result.getOrThrow(parseRsaKey(text))), pkcs1Of(text.trim()))
  })

  it.for(Object.entries(unusableKeys))("is refused if it is %s", ([, text]) => {
    assert.deepStrictEqual(parseRsaKey(text), Result.fail(rule))
  })

  it.for(Object.entries(encryptedKeys))("in %s is refused with a passphrase", ([, text]) => {
    assert.deepStrictEqual(parseRsaKey(text), Result.fail("must have no passphrase"))
  })
})

/** Milliseconds of CPU that this process took. */
const cpuOf = (act: () => void) => {
  const before = process.cpuUsage()
  act()
  const { system, user } = process.cpuUsage(before)
  return (system + user) / 1000
}

describe("a private RSA key of which bytes were changed", () => {
  const ders = [pkcs1Of(good), createPrivateKey(good).export({ type: "pkcs8", format: "der" })] as const
  // Most of the meaning of DER is in its first bytes, and in those before each number.
  const place = Arbitrary.map(
    Arbitrary.all({ near: elementOf([40, 40, 1300]), at: integer(0, 1300) }),
    ({ at, near }) => Math.min(at % near, at)
  )
  const change = Arbitrary.all({
    kind: elementOf(["set", "set", "set", "flip", "remove", "insert", "cut"] as const),
    at: place,
    byte: elementOf([0, 1, 2, 3, 4, 0x30, 0x7f, 0x80, 0x81, 0x82, 0x83, 0x84, 0xa0, 0xff])
  })
  interface Change {
    readonly kind: "set" | "flip" | "remove" | "insert" | "cut"
    readonly at: number
    readonly byte: number
  }
  const changed = (der: Buffer, { at, byte, kind }: Change) => {
    const [head, tail] = [der.subarray(0, at), der.subarray(at)]
    const [first = 0] = tail
    if (kind === "cut") return head
    if (kind === "insert") return Buffer.concat([head, Buffer.of(byte), tail])
    const there = kind === "remove" ? [] : [kind === "set" ? byte : first ^ (1 << (byte % 8))]
    return Buffer.concat([head, Buffer.from(there), tail.subarray(1)])
  }
  const counts = { accepted: 0, refused: 0 }

  it.effect.prop(
    "is refused, or has numbers within the limits and signs; neither throws or takes long",
    [Arbitrary.array(change, { minLength: 1, maxLength: 3 }), elementOf([0, 1] as const)],
    function* ([changes, format]) {
      const der = changes.reduce(changed, ders[format])
      const text = pem(format === 0 ? "RSA PRIVATE KEY" : "PRIVATE KEY", der)
      const parsed = parseRsaKey(text)
      // The least of three, because the process collects garbage too.
      assert.isBelow(Math.min(...[1, 2, 3].map(() => cpuOf(() => parseRsaKey(text)))), 50)
      if (Result.isFailure(parsed)) {
        counts.refused += 1
        return assert.strictEqual(parsed.failure, rule)
      }
      counts.accepted += 1
      const key = createPrivateKey({ key: Buffer.from(parsed.success), format: "der", type: "pkcs1" })
      const { d = "", e = "", n = "", p = "" } = key.export({ format: "jwk" })
      const bytesOf = (number: string) => Buffer.from(number, "base64url").length
      assert.isTrue(bytesOf(n) >= 256 && bytesOf(n) <= 512 && bytesOf(d) <= 512 && bytesOf(p) <= 256, "numbers")
      assert.isAtMost(bytesOf(e), 8)
      const began = process.cpuUsage()
      yield* mint({ client_email: "a@b", private_key_id: "1", private_key: parsed.success }, 0)
      const signing = process.cpuUsage(began)
      assert.isBelow(signing.system + signing.user, 500_000)
    },
    { arbitrary: { runs: 1000 } }
  )

  it("is refused and accepted both (control)", () => {
    assert.isAbove(counts.accepted, 20)
    assert.isAbove(counts.refused, 20)
  })
})
