import { CredentialId } from "../../../src/domain/Identifiers.ts"
import type { Outcome } from "../../../src/domain/routing/Outcome.ts"
import { isFinal, outcomeAfter, type Past, remainingAfter, type Tried } from "../../../src/domain/routing/Past.ts"
import type { Step } from "../../../src/domain/routing/Plan.ts"
import { assert, describe, it } from "../../support/it.ts"
import { elementOf, integer } from "../../support/memory/arbitraries.ts"
import { Arbitrary } from "effect"

const providers = ["openai", "azure"] as const
const idOf = (n: number) => CredentialId.make(`00000000-0000-7000-9000-${String(n).padStart(12, "0")}`)
const results = [
  ...(["Succeeded", "RequestRefused", "Abandoned", "UpstreamFailed", "UpstreamFailed", "UpstreamFailed"] as const),
  ...(["RateLimited", "QuotaExhausted", "Rejected", "Forbidden", "NotServed", "on_trial"] as const),
  ...(["no_token", "altered", "unknown_key", "unsupported"] as const)
]

const ownStep = (provider: Step["provider"], n: number): Step => ({
  _tag: "Own",
  provider,
  credential_id: idOf(n),
  ...({ section: "prioritized", key_version: 1, row: "", region: null, on_trial: false } as const)
})
const steps: ReadonlyArray<Step> = providers.flatMap((provider, p) => [
  ...[0, 1, 2].map((n) => ownStep(provider, 10 * p + n)),
  { _tag: "Shared", provider } as const
])

const anyTried = Arbitrary.map(
  Arbitrary.all([integer(0, steps.length - 1), elementOf(results)]),
  ([n, result]): Tried => {
    const step = steps[n] as Step
    return { provider: step.provider, credential_id: step._tag === "Own" ? step.credential_id : null, result }
  }
)
const anyPast = Arbitrary.flatMap(integer(0, 6), (length) =>
  Arbitrary.array(anyTried, { minLength: length, maxLength: length })
)

const refusals: ReadonlyArray<string> = ["on_trial", "no_token", "altered", "unknown_key", "unsupported"]
const isRefusal = ({ result }: Tried) => refusals.includes(result)

/** Says the same by quantifiers over the whole past. */
const mayBeTried = (past: Past, step: Step): boolean => {
  const ofProvider = past.filter(({ provider }) => provider === step.provider)
  const answers = ofProvider.filter((one) => !isRefusal(one)).map(({ result }) => result)
  const failures = answers.length - 1 - answers.findLastIndex((result) => result !== "UpstreamFailed")
  const isTried = ofProvider.some(({ credential_id }) =>
    step._tag === "Own" ? credential_id === step.credential_id : credential_id === null
  )
  const isWithheld = ofProvider.some((one) => isRefusal(one) && one.result !== "on_trial")
  const isOver = past.some(({ result }) => ["Succeeded", "RequestRefused", "Abandoned"].includes(result))
  return !isOver && failures < 2 && !isTried && !(step._tag === "Shared" && isWithheld)
}

describe("what a request has tried", () => {
  it.prop("decides what it may still try as a plain reference does (Q29)", [anyPast], ([past]) => {
    const isRemaining = remainingAfter(past)
    for (const step of steps)
      assert.strictEqual(isRemaining(step), mayBeTried(past, step), JSON.stringify([past, step]))
  })

  it.prop("makes a bare 403 after another of its provider say nothing about the key", [anyPast], ([past]) => {
    for (const provider of providers) {
      const isSecond = past.some((one) => one.provider === provider && one.result === "Forbidden")
      const outcome: Outcome = { _tag: "Forbidden" }
      assert.strictEqual(outcomeAfter(past, provider, outcome)._tag, isSecond ? "NotServed" : "Forbidden")
      const rejected: Outcome = { _tag: "Rejected" }
      assert.strictEqual(outcomeAfter(past, provider, rejected), rejected)
    }
  })

  it("ends with an answer to return, and with no other result", () => {
    const final = results.filter(isFinal)
    assert.sameMembers(Array.from(new Set(final)), ["Succeeded", "RequestRefused", "Abandoned"])
  })
})
