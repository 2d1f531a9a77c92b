import { createHmac, hkdfSync } from "node:crypto"
import { Arbitrary, Result } from "effect"
import { generateKeyring, parseKeyring } from "../../../src/crypto/keyring/Keyring.ts"
import { anyString, bytes, canary, elementOf, integer } from "../../support/memory/arbitraries.ts"
import { parsed } from "../../support/keys/keyrings.ts"
import { assert, describe, it } from "../../support/it.ts"

const keyOf = (fill: string) => Buffer.alloc(32, fill).toString("base64")
const one = `kek-1:${keyOf("one")}`
const two = `kek-2:${keyOf("two")}`
const ids = (text: string) => Array.from(parsed(text).byId.keys())

const refusal = (text: string) =>
  Result.match(parseKeyring(text), { onFailure: ({ message }) => message, onSuccess: () => undefined })

describe("parsing a keyring (docs/keys.md, The keyring)", () => {
  it.for([
    ["one key", one, ["kek-1"]],
    ["one key and a line break", `${one}\n`, ["kek-1"]],
    ["two keys", `${one}\n${two}`, ["kek-1", "kek-2"]],
    ["two keys the other way round", `${two}\n${one}\n`, ["kek-2", "kek-1"]],
    ["lines that end in CR LF, empty lines and blanks around", `\r\n  ${one}\r\n\r\n\t${two} \r\n`, ["kek-1", "kek-2"]],
    ["an id of every character allowed", `AZaz09._-:${keyOf("one")}`, ["AZaz09._-"]],
    ["an id of 64 characters", `${"k".repeat(64)}:${keyOf("one")}`, ["k".repeat(64)]]
  ] as const)("accepts %s, and makes the first key primary", ([, text, expected]) => {
    assert.deepEqual(ids(text), Array.from(expected))
    assert.strictEqual(parsed(text).primary.kek_id, expected[0])
  })

  it.prop(
    "gives each key a check value: 16 bytes of HMAC-SHA-256 of its id under HKDF of the key (T12)",
    [bytes(32, 32), elementOf(["K", "kek-1"])],
    ([key, id]) => {
      const checkKey = Buffer.from(hkdfSync("sha256", key, "", "byok/kcv", 32))
      const expected = createHmac("sha256", checkKey).update(id).digest().subarray(0, 16)
      const kek = parsed(`${id}:${key.toString("base64")}`).byId.get(id)
      assert.deepStrictEqual(Buffer.from(kek?.check_value ?? []), expected)
      assert.deepStrictEqual(kek?.key.export(), key)
    }
  )
})

describe("the error for an invalid keyring (docs/keys.md, The keyring)", () => {
  const expected = "expected id:base64 of 32 bytes, with an id of 1 to 64 characters of A-Z a-z 0-9 . _ -; found"
  const keyOfBytes = (bytes: Buffer) => `kek-1:${bytes.toString("base64")}`
  it.for([
    ["no id", `:${keyOf("one")}`, "45 characters in another form"],
    ["no colon", "kek-1", "5 characters in another form"],
    ["an id of 65 characters", `${"k".repeat(65)}:${keyOf("one")}`, "110 characters in another form"],
    ["an id with another character", `kek/1:${keyOf("one")}`, "50 characters in another form"],
    ["an id outside ASCII", `k\u00e9k:${keyOf("one")}`, "48 characters in another form"],
    ["nothing after the colon", "kek-1:", "0 bytes"],
    ["something after the key", `${one}:more`, "55 characters in another form"],
    ["31 bytes", keyOfBytes(Buffer.alloc(31, "one")), "31 bytes"],
    ["33 bytes", keyOfBytes(Buffer.alloc(33, "one")), "33 bytes"],
    ["16 bytes", keyOfBytes(Buffer.alloc(16, "one")), "16 bytes"],
    ["base64 without padding", one.slice(0, -1), "base64 that is not canonical"],
    ["base64url", `kek-1:${Buffer.alloc(32, 0xfb).toString("base64url")}=`, "base64 that is not canonical"],
    ["base64 with unused bits set", `${one.slice(0, -2)}9=`, "base64 that is not canonical"],
    ["hexadecimal", `kek-1:${"0a".repeat(32)}`, "48 bytes"],
    ["32 zeros", keyOfBytes(Buffer.alloc(32)), "32 equal bytes"],
    ["32 times the same byte", keyOfBytes(Buffer.alloc(32, 0xa5)), "32 equal bytes"]
  ] as const)("says what was expected and what was found: %s", ([, text, found]) => {
    assert.strictEqual(refusal(text), `key 1: ${expected} ${found}`)
  })

  it("names the position of an invalid key, and reports a repeated id", () => {
    assert.strictEqual(refusal(`${one}\nkek-2:`), `key 2: ${expected} 0 bytes`)
    for (const twice of [`${one}\nkek-1:${keyOf("two")}`, `${one}\n${two}\n${one}`]) {
      assert.strictEqual(refusal(twice), "expected unique ids; found a duplicate")
    }
  })

  const windows = (secret: string) =>
    Array.from({ length: secret.length - 5 }, (_, start) => secret.slice(start, start + 6))
  /** A keyring with something wrong, and the secret text in it. */
  const wrong = Arbitrary.map(
    Arbitrary.all({ secret: canary, key: bytes(32, 32), form: integer(0, 6) }),
    ({ form, key, secret }) => {
      const good = `kek-1:${key.toString("base64")}`
      const forms = [
        `${good}\n${secret}`,
        `${good}\nkek-2:${secret}`,
        secret,
        `kek-2:${secret}==\n${good}`,
        `:${secret}`,
        `${secret.padEnd(43, "A").slice(0, 43)}=:${secret}`,
        `${secret.slice(0, 20)}:${key.toString("base64")}\n${secret.slice(0, 20)}:${key.toString("base64")}`
      ]
      return { secret, text: forms[form] ?? "" }
    }
  )
  const quotes = (said: string, secret: string) => windows(secret).some((window) => said.includes(window))

  it.prop("quotes no part of the keyring, neither id nor key (T4)", [wrong], ([{ secret, text }]) => {
    const message = refusal(text)
    assert.isDefined(message)
    assert.isFalse(quotes(message ?? "", secret))
  })

  it.effect("fails this check if it quotes the line (control)", function* () {
    const checked = yield* Arbitrary.checkEffect(
      wrong,
      ({ secret, text }) => !quotes(`${refusal(text)} in ${text}`, secret)
    )
    assert.strictEqual(checked._tag, "Falsified")
  })

  it.prop("is the only error that parsing any text can throw", [anyString, anyString], ([before, after]) => {
    for (const text of [before, `${before}:${after}`, `${one}\n${before}`, `kek-1:${after}`]) refusal(text)
  })
})

describe("a generated keyring (D40)", () => {
  it("has one new key, whose id contains the date", () => {
    const made = Array.from({ length: 100 }, () => generateKeyring(new Date("2026-01-31T23:59:59Z")))
    for (const text of made) assert.match(text, /^kek-2026-01-31-[0-9a-f]{6}:[A-Za-z0-9+/]{43}=$/)
    assert.strictEqual(new Set(made.map((text) => text.split(":")[1])).size, 100)
    for (const text of made) assert.strictEqual(parsed(text).byId.size, 1)
  })
})
