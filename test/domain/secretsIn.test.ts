import { assert, describe, it } from "@effect/vitest"
import { Redacted } from "effect"
import { secretsIn } from "../../src/domain/secretsIn.ts"
import { elementOf, keyMaterial, text } from "../support/memory/arbitraries.ts"

const of = (provider: string, key: string) => Array.from(new Set(secretsIn(provider, Redacted.make(key))))

describe("the secrets in a stored key (L15)", () => {
  it.for<readonly [name: string, provider: string, key: string, secrets: ReadonlyArray<string>]>([
    ["a plain key", "cohere", "sk-1", ["sk-1"]],
    ["key material", "openai", '{"api_key":"sk-1","region":"us"}', ['{"api_key":"sk-1","region":"us"}', "sk-1"]],
    ["the same of another provider", "cohere", '{"api_key":"sk-1"}', ['{"api_key":"sk-1"}', "sk-1"]],
    ["nested JSON", "azure", '[{"a":{"b":["x"]}},"y",1,null]', ['[{"a":{"b":["x"]}},"y",1,null]', "y", "x"]],
    ["a string in JSON", "xai", ' "sk-1"\n', [' "sk-1"\n', "sk-1"]],
    ["text that is no JSON", "xai", '{"api_key":"sk-1"', ['{"api_key":"sk-1"']],
    ["escapes", "google-vertex", '{"k":"a\\nb\\u00e9"}', ['{"k":"a\\nb\\u00e9"}', "a\nbé"]]
  ])("are whole and parts: %s", ([, provider, key, secrets]) => {
    assert.sameMembers(of(provider, key), [...secrets])
  })

  it.prop(
    "include the api_key of key material",
    [elementOf(["openai", "fireworks", "cohere"]), text(1, 40)],
    ([slug, secret]) => of(slug, JSON.stringify({ api_key: secret })).includes(secret)
  )

  it.prop("include the key as a whole", [keyMaterial(text(0, 20))], ([key]) => of("openai", key).includes(key))

  it("are found in JSON however deep", () => {
    const depth = 100_000
    assert.include(of("xai", `${"[".repeat(depth)}"sk-1"${"]".repeat(depth)}`), "sk-1")
  })
})
