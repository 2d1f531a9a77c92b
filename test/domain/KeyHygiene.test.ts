import { keyFaultIn } from "../../src/domain/keyFault.js"
import { labelOf } from "../../src/domain/labelOf.js"
import { awsAccessKey, providerKey } from "../support/keys/providerKeys.ts"
import { canary, elementOf, integer, text } from "../support/memory/arbitraries.ts"
import { assert, describe, it } from "../support/it.ts"

const blank = "must not have white space, a control character or a format character at either end"
const quoted = "must not have quotes around it"
const scheme = "must not have a scheme such as Bearer before it"
const label = "must not have the form of a label or a mask"
const url = "must not have the form of a URL"
const line = "must not have the form of a line such as NAME=value or name: value"
const reference = "must not have the form of a reference or placeholder such as os.environ/NAME or YOUR_API_KEY"
const inside =
  "must not have a line break or another control or format character inside, unless the whole key is valid JSON"

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
    "accepts any text inside a key except a mask such as ***, control characters and format characters",
    [canary, text(0, 40), canary],
    ([first, middle, last]) =>
      keyFaultIn(first + middle + last) ===
      (middle.includes("***") ? label : /[\p{Cc}\p{Cf}]/u.test(middle) ? inside : undefined)
  )

  it.prop("accepts keys of every form that providers issue", [providerKey], ([key]) => {
    for (const json of [{ api_key: key }, [{ api_key: key }, { api_key: key }]]) {
      assert.isUndefined(keyFaultIn(JSON.stringify(json)))
    }
    assert.isUndefined(keyFaultIn(key))
  })

  it.prop(
    "accepts access keys of AWS",
    [awsAccessKey],
    ([key]) => keyFaultIn(JSON.stringify(key, null, 2)) === undefined
  )

  const masks = elementOf(["...", "....", "\u2026", "***", "*".repeat(20), "\u2022".repeat(4), "***..."])

  it.prop(
    "refuses a key of any form that a console has masked, alone or as a secret in JSON",
    [providerKey, integer(0, 24), masks, integer(0, 12)],
    ([key, first, mask, last]) => {
      const masked = key.slice(0, first) + mask + key.slice(key.length - last)
      assert.strictEqual(keyFaultIn(masked), label)
      for (const [json, member] of [
        [{ api_key: masked, region: "us" }, "an api_key"],
        [{ accessKeyId: "k", secretAccessKey: masked }, "a secretAccessKey"],
        [{ accessKeyId: "k", secretAccessKey: key, sessionToken: masked }, "a sessionToken"],
        [[{ api_key: key }, { api_key: masked }], "an api_key"]
      ] as const) {
        const expected = label.replace("must not have", `must not have ${member} with`)
        assert.strictEqual(keyFaultIn(JSON.stringify(json)), expected)
      }
    }
  )

  it.prop(
    "refuses a line of a program, a shell or a header around a key, which JSON may not have as api_key either",
    [
      providerKey,
      elementOf([
        ...[
          "OPENAI_API_KEY=",
          "OPENAI_API_KEY: ",
          "export KEY=",
          "set GROQ_API_KEY=",
          "apiKey=",
          "apiKey: ",
          "api_key="
        ],
        ...["x-api-key: ", "X-API-Key:", "Authorization: ", '$Env:OPENAI_API_KEY="', '$env:KEY = "', '"api_key": "'],
        ...["secretAccessKey: ", "api-key= ", "aws_secret_access_key = "]
      ])
    ],
    ([key, before]) => {
      const after = before.endsWith('"') ? '"' : ""
      assert.strictEqual(keyFaultIn(before + key + after), line)
      assert.strictEqual(
        keyFaultIn(JSON.stringify([{ api_key: before + key + after }])),
        line.replace("must not have", "must not have an api_key with")
      )
    }
  )

  it.prop("refuses quotes around a key", [elementOf(Array.from("\"'`")), canary], ([quote, key]) => {
    for (const end of ["", ",", ";"]) assert.strictEqual(keyFaultIn(quote + key + quote + end), quoted)
    assert.isUndefined(keyFaultIn(quote + key))
    assert.isUndefined(keyFaultIn(key + quote))
  })

  it.prop(
    "refuses an authentication scheme such as Bearer before a key",
    [elementOf(["Bearer ", "bearer\t", "BASIC ", "Authorization: Bearer ", "Token ", "Api-Key ", "apikey  "]), canary],
    ([before, key]) =>
      keyFaultIn(before + key) === scheme &&
      keyFaultIn(before.trim() + key) === (before.startsWith("Authorization") ? line : undefined)
  )

  it.prop("refuses the label of a key in place of the key", [text(1, 60), canary], ([any, key]) => {
    assert.isDefined(keyFaultIn(labelOf(any)))
    assert.strictEqual(keyFaultIn(labelOf(key)), label)
  })

  it.prop("accepts white space around JSON, and checks its api_key", [canary, blanks], ([key, end]) => {
    assert.isUndefined(keyFaultIn(` \n${JSON.stringify({ region: "us", api_key: key })}\r\n`))
    assert.strictEqual(
      keyFaultIn(JSON.stringify({ api_key: key + end })),
      "must not have an api_key with white space, a control character or a format character at either end"
    )
  })

  const cases = [
    ["a private key of many lines", `-----BEGIN PRIVATE KEY-----\nMIIE\n-----END PRIVATE KEY-----`, inside],
    ["cut JSON of several lines", '{\n  "type": "service_account",\n  "private_key": "', inside],
    ["a key with a DEL", "sk-01\u007f23", inside],
    [
      "an api_key with a zero-width space",
      '{"api_key":"sk-01\u200b23"}',
      inside.replace("have", "have an api_key with")
    ],
    [
      "a service account in indented JSON",
      JSON.stringify({ type: "service_account", private_key: "-\n-" }, null, 2),
      undefined
    ],
    ["JSON without api_key", '{ "type": "service_account" }\n', undefined],
    ["a list in JSON", '\n[{"endpoint_url":"https://fake.test","api_key":"k"}]\n', undefined],
    ["a key that begins with a brace but is no JSON, with a blank at its end", "{sk-1 ", blank],
    ["JSON in quotes", `'{"api_key":"sk-1"}'`, quoted],
    ["one quotation mark", '"', undefined],
    ["the name of a scheme alone", "Bearer", undefined],
    ["a user name and password with a colon between", "user:pass word", undefined],
    ["only dots", "...", label],
    ["dots in a longer key", `${"k".repeat(25)}...AbCd`, undefined],
    ["dots before a longer end", `sk-...${"k".repeat(13)}`, undefined],
    ["two dots", "sk-a..AbCd", undefined],
    ["typographic quotes", "\u201csk-0123456789\u201d", quoted],
    ["a label with an ellipsis", "sk-\u2026AbCd", label],
    ["an ellipsis beside letters beyond ASCII", "s\u00e9same\u2026ouvre-toi", undefined],
    ["only bullets", "\u2022".repeat(12), label],
    ["two stars inside a key", "sk-**-0123456789", undefined],
    ["a URL", "https://platform.openai.com/api-keys", url],
    ["a URL with a key", "HTTPS://u:p@fake.test", url],
    ["a host and a port", "fake.test:443/v1", undefined],
    ["the padding of base64", "ABSKQEDROCKAPIKEY==", undefined],
    ["an equals sign inside a key", "sk-0123=456789", undefined],
    ["blanks and letters beyond ASCII inside a key", "correct h\u00f6rse \u4e2d battery", undefined],
    ["a reference to an environment variable of LiteLLM", "os.environ/OPENAI_API_KEY", reference],
    ["a reference to an environment variable of Bifrost", "env.OPENAI_API_KEY", reference],
    ["a reference of JavaScript", "process.env.OPENAI_API_KEY", reference],
    ["a reference of a shell", "${OPENAI_API_KEY}", reference],
    ["a variable of a shell", "$OPENAI_API_KEY", reference],
    ["the name of a variable", "OPENAI_API_KEY", reference],
    ["a variable of Windows", "%OPENAI_API_KEY%", reference],
    ["a reference of a template", "${{ secrets.OPENAI_API_KEY }}", reference],
    ["a reference of another template", "{{ .Values.key }}", reference],
    ["the placeholder of LibreChat", "user_provided", reference],
    ["a placeholder", "YOUR_API_KEY", reference],
    ["a placeholder in brackets", "<your-api-key>", reference],
    ["a placeholder with a prefix", "sk-your-api-key-here", reference],
    ["a redacted key", "[REDACTED]", reference],
    ["the beginning of a redacted key", "sk-[redacted]", reference],
    ["null", "null", reference],
    ["undefined", "undefined", reference],
    ["an object that a program has printed", "[object Object]", reference],
    ["a placeholder as api_key", '{"api_key":"YOUR_API_KEY"}', reference.replace("have", "have an api_key with")],
    ["a word that is the beginning of a placeholder", "nullified-0123456789", undefined],
    ["a key that contains a name", "sk-OPENAI_API_KEY-0123", undefined],
    ["a percent sign at both ends of a key", "%sk-01.23%", undefined],
    ["a key of two parts", "ABCDEFKEY:0123456789/abc", undefined],
    ["a comma after a key", "sk-0123456789,", undefined],
    ["cut JSON, which the rules of its provider judge", '{"type":"service_account","private_key":"', undefined]
  ] as const
  it.for(cases.filter(([, , fault]) => fault === undefined))("accepts %s", ([, key]) => {
    assert.isUndefined(keyFaultIn(key))
  })

  it("judges any long text at once", () => {
    const before = process.cpuUsage()
    for (const part of ["a", "a-", "a_", "key", "api-", "your-", "..", "{", '"', "$", "<", " ", "A", "[", "key:"]) {
      keyFaultIn(part.repeat(250_000 / part.length))
      keyFaultIn(`${part.repeat(250_000 / part.length)}\n`)
      keyFaultIn(`your${part.repeat(250_000 / part.length)}\u4e2d`)
    }
    assert.isBelow(process.cpuUsage(before).user, 3_000_000)
  })

  it.for(cases.filter(([, , fault]) => fault !== undefined))("refuses %s", ([, key, fault]) => {
    assert.strictEqual(keyFaultIn(key), fault)
  })
})
