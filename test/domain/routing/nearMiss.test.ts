import { assert, describe, it } from "@effect/vitest"
import { nearMiss } from "../../../src/domain/routing/nearMiss.ts"

describe("a model that is almost in a list (E18)", () => {
  it.each([
    ["openai/gpt-4o", ["OpenAI/GPT-4o"], "it has OpenAI/GPT-4o: case and blanks count"],
    ["openai/gpt-4o", [" openai/gpt-4o"], "it has  openai/gpt-4o: case and blanks count"],
    ["openai/gpt-4o", ["gpt-4o"], "it has gpt-4o: a slug needs its vendor"],
    ["gpt-4o", ["openai/gpt-4o"], "it has openai/gpt-4o: the request's model lacks its vendor"],
    ["openai/gpt-4o", ["azure/gpt-4o"], "it has azure/gpt-4o: the vendor is another one"],
    ["openai/gpt-4o:free", ["openai/gpt-4o"], "it has openai/gpt-4o: a variant is a model of its own"],
    ["openai/gpt-4o", ["openai/gpt-4o:free"], "it has openai/gpt-4o:free: a variant is a model of its own"],
    ["openai/gpt-4o:free", ["GPT-4o"], "it has GPT-4o: vendor and variant count"],
    ["openai/gpt-4o", ["gpt-4o", "OPENAI/gpt-4o"], "it has OPENAI/gpt-4o: case and blanks count"]
  ])("%s in %j: %s", (model, allowed, hint) => {
    assert.strictEqual(nearMiss(allowed, model), hint)
  })

  it.each([[[]], [["openai/gpt-4"]], [["openai/"]], [[""]]])("is not in %j", (allowed) => {
    assert.isUndefined(nearMiss(allowed, "openai/gpt-4o"))
  })
})
