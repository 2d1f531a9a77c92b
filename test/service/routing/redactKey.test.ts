import { Arbitrary, Redacted } from "effect"
import { redactKey } from "../../../src/service/routing/redactKey.ts"
import { canary, elementOf, integer } from "../../support/memory/arbitraries.ts"
import { assert, describe, it } from "../../support/it.ts"

/** Replaces the longest encoding at each place of a text, from left to right. */
const redactSlowly = (text: string, encodings: ReadonlyArray<string>, replacement: string) => {
  let redacted = ""
  for (let at = 0; at < text.length;) {
    const here = encodings.filter((encoding) => text.startsWith(encoding, at))
    const length = Math.max(0, ...here.map((encoding) => encoding.length))
    redacted += length > 0 ? replacement : text.charAt(at)
    at += Math.max(1, length)
  }
  return redacted
}

const plainEncodings = (secret: string) => {
  const bytes = Buffer.from(secret)
  const within = (before: number) =>
    Buffer.concat([Buffer.alloc(before), bytes])
      .toString("base64")
      .slice(Math.ceil((before * 8) / 6), Math.floor(((before + bytes.length) * 8) / 6))
  const base64 = [bytes.toString("base64").replace(/=+$/, ""), within(0), within(1), within(2)]
  const percent = encodeURIComponent(secret)
  return [
    ...[secret, JSON.stringify(secret).slice(1, -1), percent, percent.replace(/%../g, (code) => code.toLowerCase())],
    ...base64.flatMap((text) => [text, text.replaceAll("+", "-").replaceAll("/", "_")]),
    ...[bytes.toString("hex"), bytes.toString("hex").toUpperCase()]
  ]
}

const redact = (text: string, key: string, parts: ReadonlyArray<string> = []) =>
  redactKey(text, "xai", Redacted.make(key), "<id>", parts)

/** Milliseconds of CPU that this process took. */
const cpuOf = (act: () => void) => {
  const before = process.cpuUsage()
  act()
  const { system, user } = process.cpuUsage(before)
  return (system + user) / 1000
}

describe("the redaction of a key", () => {
  const special = elementOf(["", "a", "aaaaaaaaaaaa", "+/=?&", "\\^$.*+?()[]{}|", '"\n', "\u00e9\u4e2d", "\u{1f600}"])
  const secret = Arbitrary.map(Arbitrary.array(special, { minLength: 1, maxLength: 4 }), (parts) =>
    parts.join("").padEnd(8, "a")
  )
  const piece = Arbitrary.all({
    form: integer(0, 13),
    cut: elementOf([0, 0, 0, 1]),
    between: elementOf(["", "a", " said "])
  })

  it.prop(
    "replaces what a plain search through the text replaces",
    [secret, Arbitrary.array(piece, { maxLength: 8 }), canary],
    ([key, pieces, part]) => {
      const forms = plainEncodings(key)
      const text = pieces.map(({ between, cut, form }) => `${(forms[form] ?? "").slice(cut)}${between}`).join("")
      const encodings = [...forms, ...plainEncodings(part)]
      assert.strictEqual(redact(`${text}${part}`, key, [part]), redactSlowly(`${text}${part}`, encodings, "<id>"))
    }
  )

  it.for([23_999, 24_000, 100_000, 256_000])("works for a secret of %i characters", (length) => {
    const key = "sk-fake+0123456789".repeat(length / 18).padEnd(length, "x")
    const forms = plainEncodings(key)
    for (const form of forms) {
      const millis = cpuOf(() => assert.strictEqual(redact(`said ${form}.`, key).replaceAll("=", ""), "said <id>."))
      assert.isBelow(millis, 1000)
    }
    const cut = redact(`said ${key.slice(0, -9)}`, key)
    assert.strictEqual(cut, "said <id>", "one that was cut")
  })

  it.for<readonly [name: string, key: string, text: string]>([
    ["one letter", "a".repeat(250_000), "a".repeat(249_999)],
    ["one letter and another one at the start", `b${"a".repeat(250_000)}`, "a".repeat(1_000_000)],
    ["one letter and another one at the end", `${"a".repeat(250_000)}b`, "a".repeat(1_000_000)],
    [
      "one letter and others in the middle",
      `${"a".repeat(500)}b${"a".repeat(500)}`,
      `${"a".repeat(600)}b`.repeat(1600)
    ],
    [
      "20 secrets",
      JSON.stringify(Array.from({ length: 20 }, (_, n) => `${"a".repeat(9000)}${n}`)),
      "a".repeat(1_000_000)
    ]
  ])("takes time in proportion to the text, for a key of %s", ([, key, text]) => {
    assert.isBelow(
      cpuOf(() => redact(text, key)),
      2000
    )
  })

  it("replaces a secret of JSON with half of a surrogate pair", () => {
    const key = '{"secret":"\\ud83d-0123456789"}'
    assert.strictEqual(redact(`said ${key} and \ud83d-0123456789.`, key), "said <id> and <id>.")
  })
})
