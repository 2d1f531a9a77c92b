import { assert, describe, it } from "@effect/vitest"
import { Redacted } from "effect"
import { secretsOfLeak } from "../../src/domain/secretsOfLeak.ts"
import { text } from "../support/memory/arbitraries.ts"

const of = (leak: string) => secretsOfLeak(Redacted.make(leak))

describe("the secrets that leaked text may be (L15)", () => {
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
  ])("%j", ([leak, secrets]) => {
    assert.deepStrictEqual(of(leak), secrets)
  })

  it.prop("include the text as it is, and as it was before an editor ended its line", [text(1, 40)], ([secret]) =>
    [secret, `${secret}\n`, `${secret}\r\n`, `\uFEFF${secret}\n`].every((leak) => {
      const secrets = of(leak)
      return secrets.includes(secret) || secret.startsWith("\uFEFF") || secret.endsWith("\r")
    })
  )
})
