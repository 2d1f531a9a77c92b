import { readFileSync } from "node:fs"
import { Schema } from "effect"
import { Provider } from "../../../src/domain/Provider.ts"
import { type Outcome, outcomeOf } from "../../../src/domain/routing/Outcome.ts"
import { errorRuleFor, errorRulesOf } from "../../../src/domain/routing/providerErrors/errorRuleFor.ts"
import { upstreamErrorIn } from "../../../src/domain/routing/providerErrors/UpstreamError.ts"
import { assert, describe, it } from "../../support/it.ts"

/** Answers of providers, as their pages or public trackers show them. `seen`: the body was shown, not only described. */
const answers = Schema.decodeUnknownSync(
  Schema.fromJsonString(
    Schema.Array(
      Schema.Struct({
        provider: Provider,
        status: Schema.Int,
        body: Schema.String,
        outcome: Schema.String,
        source: Schema.String,
        seen: Schema.Boolean
      })
    )
  )
)(readFileSync(new URL("../../vectors/provider-errors.json", import.meta.url), "utf8"))

const now = Date.UTC(2026, 10, 21, 12)
const ruleOf = ({ body, provider, status }: (typeof answers)[number]) =>
  errorRuleFor(provider, status, upstreamErrorIn(body) ?? { codes: [], messages: [] })

describe("what providers really answer", () => {
  it.each(answers.map((answer) => [answer.provider, answer.status, answer.outcome, answer.source, answer] as const))(
    "%s: %i is %s (%s)",
    (provider, status, outcome, _source, { body }) => {
      assert.strictEqual(outcomeOf({ provider, status, body, retry_after: null }, now)._tag, outcome)
    }
  )

  it("has an answer for each rule, so none is out of reach behind another", () => {
    const used = new Set(answers.map(ruleOf))
    const rules = Provider.literals.flatMap((provider) => errorRulesOf(provider))
    const unused = new Set(rules.filter((rule) => !used.has(rule)))
    assert.deepStrictEqual(Array.from(unused), [])
  })

  it("outranks the status by a message only if the message begins so", () => {
    const message = "Your credit balance is too low"
    const outcomeWith = (text: string): Outcome["_tag"] => {
      const body = JSON.stringify({ type: "error", error: { type: "invalid_request_error", message: text } })
      return outcomeOf({ provider: "anthropic", status: 400, body, retry_after: null }, now)._tag
    }
    assert.strictEqual(outcomeWith(`${message} to access the API.`), "QuotaExhausted")
    assert.strictEqual(outcomeWith(`messages.0: ${message}`), "RequestRefused", "the body may repeat the prompt")
  })

  it("is of the provider alone that answers so", () => {
    const body = JSON.stringify({ error: { message: "Your credit balance is too low" } })
    assert.strictEqual(
      outcomeOf({ provider: "openai", status: 400, body, retry_after: null }, now)._tag,
      "RequestRefused"
    )
  })
})
