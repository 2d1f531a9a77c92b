import { Option, Redacted, Result, Schema } from "effect"
import { isUnableToSign, parseJson, readKeyMaterial, secretsIn, secretsOfLeak } from "../../src/domain/KeyMaterial.ts"
import { signsTokens } from "../../src/domain/Provider.ts"
import { accessKey, serviceAccount } from "../support/keys/cloudKeys.ts"
import { awsAccessKey, providerKey } from "../support/keys/providerKeys.ts"
import { elementOf, keyMaterial, provider, text } from "../support/memory/arbitraries.ts"
import { assert, describe, it } from "../support/it.ts"

describe.for(["openai", "fireworks"] as const)("the key of %s (D28)", (slug) => {
  it.for([
    ["a plain key", "sk-plain", "sk-plain", null],
    ["a plain key with blanks around it", " sk plain\n", " sk plain\n", null],
    ["JSON that is not an object, as a whole", '["sk-1"]', '["sk-1"]', null],
    ["text with a brace that is not at the start", 'k{"api_key":"a"}', 'k{"api_key":"a"}', null],
    ["an object without a region", '{"api_key":"sk-1"}', "sk-1", null],
    ["an object after blanks", ' \t\r\n{"api_key":"sk-1"}', "sk-1", null],
    ["an object with region global", '{"api_key":"sk-1","region":"global"}', "sk-1", "global"],
    ["an object with region europe", '{"api_key":"sk-1","region":"europe"}', "sk-1", "europe"],
    ["an object with region eu, which is europe", '{"region":"eu","api_key":"sk-1"}', "sk-1", "europe"],
    ["an object with region us", '{"api_key":"sk-1","region":"us"}', "sk-1", "us"],
    ["an object with other members", '{"api_key":"sk-1","organization":{"id":[1,null]},"":0}', "sk-1", null],
    ["an object with a blank api_key, kept untrimmed", '{"api_key":" "}', " ", null],
    ["an object with repeated members, of which the last counts (D13)", '{"api_key":"a","api_key":"b"}', "b", null]
  ] as const)("may be %s, and yields its secret, and its region if it names one", ([, key, secret, region]) => {
    assert.deepStrictEqual(materialOf(slug, key), Option.some({ secret, region }))
  })

  it.for([
    ["half an object", '{"api_key":"sk-1"'],
    ["only a brace", "{"],
    ["an object with something after it", '{"api_key":"sk-1"} x'],
    ["an object that is not JSON", "{'api_key':'sk-1'}"],
    ["an empty object", "{}"],
    ["an object without api_key", '{"region":"us"}'],
    ["an object with an empty api_key", '{"api_key":""}'],
    ["an object whose api_key is a number", '{"api_key":1}'],
    ["an object whose api_key is null", '{"api_key":null}'],
    ["an object whose api_key is an object", '{"api_key":{"api_key":"sk-1"}}'],
    ["an object with an empty region", '{"api_key":"sk-1","region":""}'],
    ["an object whose region is a list", '{"api_key":"sk-1","region":["us"]}'],
    ["an object with an unknown region", '{"api_key":"sk-1","region":"asia"}'],
    ["an object with its region in upper case", '{"api_key":"sk-1","region":"EU"}'],
    ["an object whose region is null", '{"api_key":"sk-1","region":null}'],
    ["an object with its api_key in __proto__", '{"__proto__":{"api_key":"sk-1"}}']
  ] as const)("is refused if it is %s", ([, key]) => {
    assert.deepStrictEqual(materialOf(slug, key), Option.none())
  })

  it.prop("that is a JSON object has its api_key as secret, unchanged", [text(1, 60)], ([secret]) => {
    const material = materialOf(slug, JSON.stringify({ region: "us", api_key: secret, more: 1 }))
    assert.deepStrictEqual(material, Option.some({ secret, region: "us" }))
  })
})

/** The content of a raw key, with its secret in the clear. */
const materialOf = (provider: string, key: string) =>
  Option.map(Result.getSuccess(readKeyMaterial(provider, Redacted.make(key))), ({ region, secret }) => ({
    secret: Redacted.value(secret),
    region
  }))

describe("the key of a provider that takes only plain keys (D28)", () => {
  it.prop("is used whole, even if it is JSON with an api_key", [provider, keyMaterial(text(0, 40))], ([slug, key]) => {
    if (slug === "openai" || slug === "fireworks" || signsTokens(slug)) return
    assert.deepStrictEqual(materialOf(slug, key), Option.some({ secret: key, region: null }))
  })
})

const secretsOf = (provider: string, key: string) => Array.from(new Set(secretsIn(provider, Redacted.make(key))))

describe("the secrets in a stored key (L15)", () => {
  it.for<readonly [name: string, provider: string, key: string, secrets: ReadonlyArray<string>]>([
    ["a plain key", "cohere", "sk-1", ["sk-1"]],
    [
      "a JSON object with api_key, for openai",
      "openai",
      '{"api_key":"sk-1","region":"us"}',
      ['{"api_key":"sk-1","region":"us"}', "sk-1"]
    ],
    ["a JSON object with api_key, for cohere", "cohere", '{"api_key":"sk-1"}', ['{"api_key":"sk-1"}', "sk-1"]],
    ["nested JSON", "azure", '[{"a":{"b":["x"]}},"y",1,null]', ['[{"a":{"b":["x"]}},"y",1,null]', "y", "x"]],
    ["a JSON string", "xai", ' "sk-1"\n', [' "sk-1"\n', "sk-1"]],
    ["text that is no JSON", "xai", '{"api_key":"sk-1"', ['{"api_key":"sk-1"']],
    ["JSON with escapes", "google-vertex", '{"k":"a\\nb\\u00e9"}', ['{"k":"a\\nb\\u00e9"}', "a\nbé"]]
  ])("are the key itself and any strings of its JSON, unescaped, if it is %s", ([, provider, key, secrets]) => {
    assert.sameMembers(secretsOf(provider, key), [...secrets])
  })

  it.prop(
    "are found by a parser that agrees with JSON.parse",
    [Schema.Json, Schema.Literals(["", " ", "\t", "\r\n"])],
    ([value, space]) => {
      assert.deepStrictEqual(parseJson(`${space}${JSON.stringify(value)}${space}`), JSON.parse(JSON.stringify(value)))
    }
  )

  it("include a string of JSON nested 100,000 levels deep", () => {
    const depth = 100_000
    assert.include(secretsOf("xai", `${"[".repeat(depth)}"sk-1"${"]".repeat(depth)}`), "sk-1")
  })
})

const leakOf = (leak: string) => secretsOfLeak(Redacted.make(leak))

describe("the secrets to search for when text leaked (L15)", () => {
  it.for<readonly [leak: string, secrets: ReadonlyArray<string>]>([
    ["sk-1", ["sk-1"]],
    ["sk-1\n", ["sk-1\n", "sk-1"]],
    ["sk-1\r\n", ["sk-1\r\n", "sk-1"]],
    ["sk-1\n\n", ["sk-1\n\n", "sk-1\n"]],
    ["\uFEFFsk-1\n", ["\uFEFFsk-1\n", "sk-1"]],
    [" sk-1 ", [" sk-1 "]],
    ['{"api_key":"sk-1","region":"us"}', ['{"api_key":"sk-1","region":"us"}', "sk-1"]],
    ['{"other":"sk-1"}', ['{"other":"sk-1"}']],
    ["\n", ["\n"]],
    ["", []]
  ])("for the leaked text %j are the list %j", ([leak, secrets]) => {
    assert.deepStrictEqual(leakOf(leak), secrets)
  })

  it.prop("include the text without the byte order mark and final line break of an editor", [text(1, 40)], ([secret]) =>
    [secret, `${secret}\n`, `${secret}\r\n`, `\uFEFF${secret}\n`].every((leak) => {
      const secrets = leakOf(leak)
      return secrets.includes(secret) || secret.startsWith("\uFEFF") || secret.endsWith("\r")
    })
  )
})

/** Texts in which people store an access key of AWS. */
const awsTexts = ({ accessKeyId, secretAccessKey }: Readonly<Record<"accessKeyId" | "secretAccessKey", string>>) => ({
  "in an ini file": `[default]\naws_access_key_id = ${accessKeyId}\naws_secret_access_key = ${secretAccessKey}`,
  "as ID:SECRET": `${accessKeyId}:${secretAccessKey}`,
  "as SECRET:ID": `${secretAccessKey}:${accessKeyId}`,
  "in JSON with other names": JSON.stringify({
    aws_access_key_id: accessKeyId,
    aws_secret_access_key: secretAccessKey
  }),
  "in JSON in Base64": btoa(JSON.stringify({ accessKeyId, secretAccessKey }))
})
const googleTexts = {
  "as JSON": JSON.stringify(serviceAccount),
  "as indented JSON in Base64": btoa(JSON.stringify(serviceAccount, null, 2)),
  "as JSON in base64url": btoa(JSON.stringify(serviceAccount)).replaceAll("+", "-").replaceAll("/", "_"),
  "as its private key": serviceAccount.private_key,
  "as its private key in Base64": btoa(serviceAccount.private_key)
}

describe("a key that must not leave a process that hands out only tokens (D58)", () => {
  const others = ["openai", "azure", "xai", "anthropic", "claude-on-aws", "amazon-bedrock/claude-on-aws"]
  const signing = ["amazon-bedrock", "google-vertex"]

  it.prop("is an access key of AWS in any form but the JSON that signs tokens", [awsAccessKey], ([key]) => {
    for (const text of Object.values(awsTexts(key))) {
      for (const slug of [...others, ...signing]) assert.isTrue(isUnableToSign(slug, text), `${slug} ${text}`)
    }
    assert.isFalse(isUnableToSign("amazon-bedrock", JSON.stringify(key)))
    for (const slug of ["openai", "google-vertex"]) assert.isTrue(isUnableToSign(slug, JSON.stringify(key)))
  })

  it.for(Object.entries(googleTexts))(
    "is a service account %s, for another provider or in another form",
    ([, text]) => {
      for (const slug of [...others, "amazon-bedrock"]) assert.isTrue(isUnableToSign(slug, text), slug)
      assert.strictEqual(isUnableToSign("google-vertex", text), text !== googleTexts["as JSON"])
    }
  )

  it.prop("is any plain text for Bedrock or Vertex, except an API key of theirs", [providerKey], ([key]) => {
    const isApiKey = /^(ABSK|bedrock-api-key-|AIza|AQ\.)/.test(key)
    for (const slug of signing) assert.strictEqual(isUnableToSign(slug, key), !isApiKey)
    for (const slug of signing) assert.isTrue(isUnableToSign(slug, `${key}\n${accessKey.secretAccessKey}`))
    for (const slug of others) assert.isFalse(isUnableToSign(slug, key), slug)
  })

  it.prop(
    "is no key of another provider as JSON",
    [providerKey, elementOf(["openai", "fireworks", "azure"])],
    ([key, slug]) => {
      assert.isFalse(isUnableToSign(slug, JSON.stringify([{ api_key: key }])))
      assert.isFalse(isUnableToSign(slug, JSON.stringify({ api_key: key, region: "us" })))
    }
  )
})
