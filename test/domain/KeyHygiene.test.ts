import { keyFaultIn } from "../../src/domain/KeyMaterial.ts"
import { labelOf } from "../../src/domain/Label.ts"
import { canary, elementOf, text } from "../support/memory/arbitraries.ts"
import { assert, describe, it } from "../support/it.ts"

const blank = "must not have white space or a control character at either end"
const quoted = "must not have quotes around it"
const scheme = "must not have a scheme such as Bearer before it"
const label = "must not have the form of a label"

const blanks = elementOf(Array.from(" \t\n\r\v\f\u0000\u0001\u001b\u007f\u0085\u00a0\u2003\u2028\u2029\u3000\ufeff"))

describe("the hygiene of a key (D45)", () => {
  it.prop("refuses white space and control characters at either end", [blanks, text(0, 40)], ([end, key]) => {
    // JSON may have them.
    if (/^[{[]/.test(key.trim())) return
    assert.strictEqual(keyFaultIn(end + key), blank)
    assert.strictEqual(keyFaultIn(key + end), blank)
  })

  it.prop(
    "accepts anything inside",
    [canary, text(0, 40), canary],
    ([first, inside, last]) => keyFaultIn(first + inside + last) === undefined
  )

  it.prop("refuses quotes around a key", [elementOf(Array.from("\"'`")), canary], ([quote, key]) => {
    assert.strictEqual(keyFaultIn(quote + key + quote), quoted)
    assert.isUndefined(keyFaultIn(quote + key))
    assert.isUndefined(keyFaultIn(key + quote))
  })

  it.prop(
    "refuses a scheme before a key",
    [elementOf(["Bearer ", "bearer\t", "BASIC ", "Authorization: Bearer ", "Token ", "Api-Key ", "apikey  "]), canary],
    ([before, key]) => keyFaultIn(before + key) === scheme && keyFaultIn(before.trim() + key) === undefined
  )

  it.prop("refuses the label of any key", [text(1, 60), canary], ([any, key]) => {
    assert.isDefined(keyFaultIn(labelOf(any)))
    assert.strictEqual(keyFaultIn(labelOf(key)), label)
  })

  it.prop("accepts JSON with white space around it, and looks at its api_key", [canary, blanks], ([key, end]) => {
    assert.isUndefined(keyFaultIn(` \n${JSON.stringify({ region: "us", api_key: key })}\r\n`))
    assert.strictEqual(
      keyFaultIn(JSON.stringify({ api_key: key + end })),
      "must not have an api_key with white space or a control character at either end"
    )
  })

  it.for([
    ["a private key of many lines", `-----BEGIN PRIVATE KEY-----\nMIIE\n-----END PRIVATE KEY-----`, undefined],
    ["JSON without api_key", '{ "type": "service_account" }\n', undefined],
    ["a list in JSON", '\n[{"endpoint_url":"https://fake.test","api_key":"k"}]\n', undefined],
    ["a brace that begins no JSON, and a blank", "{sk-1 ", blank],
    ["JSON in quotes", `'{"api_key":"sk-1"}'`, quoted],
    ["a label in quotes", '"sk-...AbCd"', quoted],
    ["one quotation mark", '"', undefined],
    ["the name of a scheme", "Bearer", undefined],
    ["a user and a password", "user:pass word", undefined],
    ["dots in a longer key", "sk-a...AbCd", undefined]
  ] as const)("%s", ([, key, fault]) => assert.strictEqual(keyFaultIn(key), fault))
})
