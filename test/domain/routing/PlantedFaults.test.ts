import { Arbitrary, Effect } from "effect"
import * as Planning from "../../../src/domain/routing/planFor.ts"
import * as Pasts from "../../../src/domain/routing/Past.ts"
import * as Pooling from "../../../src/domain/routing/Pool.ts"
import { type Edit, plantedIn, sourceOf } from "./plantedIn.ts"
import { planLaws } from "./planLaws.ts"
import { anyRoutingCase, plannerOf } from "./RoutingCase.ts"
import { assert, describe, it } from "../../support/it.ts"

/** A fault, the laws that it breaks besides Q1, which all break, and the edits of the one file that has their texts. */
type Fault = readonly [fault: string, laws: ReadonlyArray<string>, edits: ReadonlyArray<Edit>]

const isUnsealed = 'if (isUntrusted(seal)) reasons.push({ reason: "seal", credential_id'

const faults: ReadonlyArray<Fault> = [
  ["the rows of a pool are not sorted", ["Q2"], [["credentials.toSorted(compare)", "credentials"]]],
  [
    "prioritized and fallback keys are mixed",
    ["Q8"],
    [['if (member.credential.is_fallback !== (phase === "fallback")) continue', ""]]
  ],
  ["ties are not broken by the id", ["Q2"], [["(a.id < b.id ? -1 : 1)", "0"]]],
  [
    "an empty allow list allows everything",
    ["Q3", "Q15"],
    [["if (list === null)", "if (list === null || list.length === 0)"]]
  ],
  [
    "every short list allows a caller without a user",
    ["Q15"],
    [["(value) => list.includes(value)", "(value) => value === null || list.includes(value)"]]
  ],
  [
    "shared capacity comes after fallback keys",
    ["Q4", "Q16"],
    [['"prioritized", "shared", "fallback"]', '"prioritized", "fallback", "shared"]']]
  ],
  [
    "fallback keys come first",
    ["Q4", "Q16"],
    [['"prioritized", "shared", "fallback"]', '"fallback", "prioritized", "shared"]']]
  ],
  [
    "is_required forbids shared capacity for allowed models only",
    ["Q5"],
    [["if (is_required)", "if (is_required && allowsModel(request.model))"]]
  ],
  [
    "is_required of an unusable key does not forbid shared capacity",
    [],
    [["if (is_required)", "if (is_required && inRegion(request, endpoint, credential.declared_region))"]]
  ],
  [
    "is_byok_only forbids shared capacity for every model",
    ["Q6"],
    [["if (is_byok_only && allowsModel(request.model))", "if (is_byok_only)"]]
  ],
  [
    "a credential for other callers forbids shared capacity",
    [],
    [["if (disabled || !allowsApiKey(request.api_key_hash) || !allowsUser(request.user_id))", "if (disabled)"]]
  ],
  ["a disabled credential forbids shared capacity", [], [["if (disabled || ", "if ("]]],
  [
    "shared capacity replaces parked keys",
    ["Q5", "Q7", "Q8"],
    [
      [
        "step: removed.length > 0 ?",
        "step: removed.length > 0 && !pool.some((one) => availabilityOf(one)._tag === 'Parked') ?"
      ]
    ]
  ],
  [
    "an altered row does not remove shared capacity",
    ["Q10"],
    [[isUnsealed, isUnsealed.replace("if (", "if (false && ")]]
  ],
  [
    "an altered, disabled row does not remove shared capacity",
    ["Q10"],
    [[isUnsealed, isUnsealed.replace("if (", "if (!disabled && ")]]
  ],
  [
    "a row in an unsupported format does not remove shared capacity",
    ["Q10"],
    [[isUnsealed, isUnsealed.replace("if (", 'if (seal !== "unsupported" && ')]]
  ],
  ["every kind of endpoint honours declared_zdr", ["Q11"], [["(declared && !honoursDeclared[kind].zdr)", "false"]]],
  [
    "a ZDR request uses a shared endpoint that retains data",
    ["Q11"],
    [["if (!meetsZdr(request, endpoint, null))", "if (false)"]]
  ],
  [
    "every kind of endpoint honours declared_region",
    ["Q12"],
    [["(honoursDeclared[kind].region || region === host)", "true"]]
  ],
  [
    "a key with another declared region serves the host",
    ["Q12"],
    [["return declared === host && (", "return region === host || declared === host && ("]]
  ],
  [
    "a regional host does not require ZDR",
    ["Q11", "Q13"],
    [
      ["const meetsZdr = ({ requires_zdr }", "const meetsZdr = ({ host, requires_zdr }"],
      ["if (!requires_zdr) return true", 'if (!requires_zdr || host !== "global") return true']
    ]
  ],
  [
    "a key that declares global does not take the region of its endpoint",
    ["Q14"],
    [['if (declared === null || declared === "global")', "if (declared === null)"]]
  ],
  [
    "a step has the region global",
    ["Q14"],
    [['declared_region === "global" ? null : declared_region', "declared_region"]]
  ],
  ["the strategies are swapped", ["Q16"], [['  strategy === "byok_first"', '  strategy !== "byok_first"']]],
  [
    "a provider's credentials also forbid the next one's shared capacity",
    ["Q17"],
    [
      [
        "const removed = removalsOf(request, endpoint, pool)",
        "const removed = removalsOf(request, endpoint, request.targets.slice(0, request.targets.indexOf(target) + 1).flatMap((one) => poolOf(one.provider)))"
      ]
    ]
  ],
  [
    "a plan with steps has a time to retry",
    ["Q18"],
    [["steps.length === 0 ? earliestEnd(providers) : null", "earliestEnd(providers)"]]
  ],
  [
    "the time to retry is that of a key with another exclusion",
    ["Q18"],
    [["const [first] = exclusions", "const [first] = exclusions.slice(-1)"]]
  ],
  [
    "the time to retry is the end of the last cooldown",
    ["Q18"],
    [["first.until < earliest", "first.until > earliest"]]
  ],
  [
    "only the first exclusion is reported",
    ["Q9"],
    [["  return exclusions\n}\n\n/** Why the shared", "  return exclusions.slice(0, 1)\n}\n\n/** Why the shared"]]
  ],
  ["positions count from one", ["Q8"], [["steps.push(step) - 1", "steps.push(step)"]]],
  [
    "shared capacity of a provider is tried twice",
    ["Q32"],
    [["credential_id ?? `${provider} shared`", "credential_id ?? `${provider} ${Math.random()}`"]]
  ],
  ["a key that was tried ends the request", ["Q32"], [['Rejected: "next"', 'Rejected: "ends"']]],
  [
    "a disabled key is a step",
    ["Q8"],
    [["const step = exclusions.length > 0 ?", 'const step = exclusions.some(({ reason }) => reason !== "disabled") ?']]
  ]
]

const files = ["planFor.ts", "Pool.ts", "Past.ts"]
const cases = Effect.runSync(Arbitrary.sampleEffect(anyRoutingCase, { count: 2000, seed: "planted" }))

const breaks = (law: () => void) => {
  try {
    law()
    return false
  } catch {
    return true
  }
}

describe("a fault planted in the planner (control)", () => {
  it.each(faults)("breaks each law that is meant to notice it; the fault: %s", async (_fault, laws, edits) => {
    const file =
      files.find((name) => edits.every(([text]) => sourceOf(name).includes(text))) ?? assert.fail("no such text")
    const planted = plannerOf({ ...Pasts, ...Planning, ...Pooling, ...(await plantedIn<object>(file, edits)) })
    const blind = ["Q1", ...laws].filter((number) => {
      const { law } = planLaws[number] ?? {}
      return law === undefined || !cases.some((routingCase) => breaks(() => law(planted, routingCase)))
    })
    assert.deepStrictEqual(blind, [])
  })

  it("exists for every law of a plan", () => {
    const finding = new Set(["Q1", ...faults.flatMap(([, laws]) => laws)])
    assert.sameMembers([...finding], Object.keys(planLaws))
  })
})
