import { keyFaultIn } from "../../src/domain/KeyMaterial.ts"
import { labelOf } from "../../src/domain/labelOf.js"
import { canary, elementOf, integer, text } from "../support/memory/arbitraries.ts"
import { assert, describe, it } from "../support/it.ts"

const blank = "must not have white space, a control character or a format character at either end"
const quoted = "must not have quotes around it"
const scheme = "must not have a scheme such as Bearer before it"
const label = "must not have the form of a label or a mask"
const url = "must not have the form of a URL"
const line = "must not have the form of a line such as NAME=value"

const blanks = elementOf(
  Array.from(
    " \t\n\r\v\f\u0000\u0001\u001b\u007f\u0085\u00a0\u2003\u2028\u2029\u3000\ufeff\u00ad\u200b\u200d\u2060\u202e\u{e0001}"
  )
)

describe("the check of a key for pasting mistakes (D45)", () => {
  it.prop("refuses white space, control and format characters at either end", [blanks, text(0, 40)], ([end, key]) => {
    // JSON may have them.
    if (/^[{[]/.test(key.trim())) return
    assert.strictEqual(keyFaultIn(end + key), blank)
    assert.strictEqual(keyFaultIn(key + end), blank)
  })

  it.prop(
    "accepts any text inside a key except a mask such as ***",
    [canary, text(0, 40), canary],
    ([first, inside, last]) => keyFaultIn(first + inside + last) === (inside.includes("***") ? label : undefined)
  )

  it.prop("refuses quotes around a key", [elementOf(Array.from("\"'`")), canary], ([quote, key]) => {
    assert.strictEqual(keyFaultIn(quote + key + quote), quoted)
    assert.isUndefined(keyFaultIn(quote + key))
    assert.isUndefined(keyFaultIn(key + quote))
  })

  it.prop(
    "refuses an authentication scheme such as Bearer before a key",
    [elementOf(["Bearer ", "bearer\t", "BASIC ", "Authorization: Bearer ", "Token ", "Api-Key ", "apikey  "]), canary],
    ([before, key]) => keyFaultIn(before + key) === scheme && keyFaultIn(before.trim() + key) === undefined
  )

  it.prop("refuses the label of a key in place of the key", [text(1, 60), canary], ([any, key]) => {
    assert.isDefined(keyFaultIn(labelOf(any)))
    assert.strictEqual(keyFaultIn(labelOf(key)), label)
  })

  it.prop(
    "refuses a key whose middle is masked",
    [canary, elementOf(["***", "\u2022\u2022\u2022\u2022", "\u25cf\u25cf\u25cf"]), integer(0, 8), integer(0, 8)],
    ([key, mask, first, last]) => keyFaultIn(`${key.slice(0, first)}${mask}${key.slice(key.length - last)}`) === label
  )

  it.prop("accepts white space around JSON, and checks its api_key", [canary, blanks], ([key, end]) => {
    assert.isUndefined(keyFaultIn(` \n${JSON.stringify({ region: "us", api_key: key })}\r\n`))
    assert.strictEqual(
      keyFaultIn(JSON.stringify({ api_key: key + end })),
      "must not have an api_key with white space, a control character or a format character at either end"
    )
  })

  const cases = [
    ["a private key of many lines", `-----BEGIN PRIVATE KEY-----\nMIIE\n-----END PRIVATE KEY-----`, undefined],
    ["JSON without api_key", '{ "type": "service_account" }\n', undefined],
    ["a list in JSON", '\n[{"endpoint_url":"https://fake.test","api_key":"k"}]\n', undefined],
    ["a key that begins with a brace but is no JSON, with a blank at its end", "{sk-1 ", blank],
    ["JSON in quotes", `'{"api_key":"sk-1"}'`, quoted],
    ["a label in quotes", '"sk-...AbCd"', quoted],
    ["one quotation mark", '"', undefined],
    ["the name of a scheme alone", "Bearer", undefined],
    ["a user name and password with a colon between", "user:pass word", undefined],
    ["dots in a longer key", "sk-a...AbCd", undefined],
    ["typographic quotes", "\u201csk-0123456789\u201d", quoted],
    ["a label with an ellipsis", "sk-\u2026AbCd", label],
    ["a longer label with an ellipsis", "sk-ant-api03-\u2026AbCd", label],
    ["an ellipsis beside letters beyond ASCII", "s\u00e9same\u2026ouvre-toi", undefined],
    ["a key as a provider masks it", "sk-proj-****abcd", label],
    ["only bullets", "\u2022".repeat(12), label],
    ["two stars inside a key", "sk-**-0123456789", undefined],
    ["a mask as api_key", '{"api_key":"sk-****"}', "must not have an api_key with the form of a label or a mask"],
    ["a URL", "https://platform.openai.com/api-keys", url],
    ["a URL with a key", "HTTPS://u:p@fake.test", url],
    ["a host and a port", "fake.test:443/v1", undefined],
    ["a line of an environment file", "OPENAI_API_KEY=sk-0123456789", line],
    ["a line of a shell script", "export OPENAI_API_KEY='sk-0123456789'", line],
    ["a line of a PowerShell script", '$env:OPENAI_API_KEY = "sk-0123456789"', line],
    ["a line of an environment file, in lower case", "openai_api_key=sk-0123456789", line],
    ["the padding of base64", "ABSKQEDROCKAPIKEY==", undefined],
    ["an equals sign inside a key", "sk-0123=456789", undefined],
    ["one character", "k", undefined],
    ["one star", "*", undefined],
    ["blanks and letters beyond ASCII inside a key", "correct h\u00f6rse \u4e2d battery", undefined],
    ["a format character inside a key", "sk-01\u200b23", undefined],
    ["cut JSON, which the rules of its provider judge", '{"type":"service_account","private_key":"', undefined]
  ] as const
  it.for(cases.filter(([, , fault]) => fault === undefined))("accepts %s", ([, key]) => {
    assert.isUndefined(keyFaultIn(key))
  })

  it.for(cases.filter(([, , fault]) => fault !== undefined))("refuses %s", ([, key, fault]) => {
    assert.strictEqual(keyFaultIn(key), fault)
  })
})
