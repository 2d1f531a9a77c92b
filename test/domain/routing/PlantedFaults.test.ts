import { assert, describe, it } from "@effect/vitest"
import { Arbitrary, Effect } from "effect"
import * as Planning from "../../../src/domain/routing/planFor.ts"
import * as Pooling from "../../../src/domain/routing/Pool.ts"
import { type Edit, plantedIn } from "./plantedIn.ts"
import { planLaws } from "./planLaws.ts"
import { anyRoutingCase, plannerOf } from "./RoutingCase.ts"

interface Fault {
  readonly fault: string
  readonly file: "planFor.ts" | "Pool.ts"
  readonly edits: ReadonlyArray<Edit>
  /** The laws that find it, besides Q1, which finds every fault. */
  readonly laws: ReadonlyArray<string>
}

const isUnsealed = 'if (seal !== "verified" && seal !== "unverified" && seal !== "unavailable") {'

const faults: ReadonlyArray<Fault> = [
  {
    fault: "rows are taken in the order in which they come",
    file: "Pool.ts",
    edits: [["credentials.toSorted(compare)", "credentials"]],
    laws: ["Q2"]
  },
  {
    fault: "sections are mixed",
    file: "Pool.ts",
    edits: [["Number(a.is_fallback) - Number(b.is_fallback) ||", ""]],
    laws: ["Q4"]
  },
  {
    fault: "ties are not broken by the id",
    file: "Pool.ts",
    edits: [["(a.id < b.id ? -1 : 1)", "0"]],
    laws: ["Q2"]
  },
  {
    fault: "an empty list is taken for none",
    file: "Pool.ts",
    edits: [["if (list === null)", "if (list === null || list.length === 0)"]],
    laws: ["Q3", "Q15"]
  },
  {
    fault: "a caller without a user is in every short list",
    file: "Pool.ts",
    edits: [["(value) => list.includes(value)", "(value) => value === null || list.includes(value)"]],
    laws: ["Q15"]
  },
  {
    fault: "shared capacity comes after fallback keys",
    file: "planFor.ts",
    edits: [['"prioritized", "shared", "fallback"]', '"prioritized", "fallback", "shared"]']],
    laws: ["Q4", "Q16"]
  },
  {
    fault: "fallback keys come first",
    file: "planFor.ts",
    edits: [['"prioritized", "shared", "fallback"]', '"fallback", "prioritized", "shared"]']],
    laws: ["Q4", "Q16"]
  },
  {
    fault: "is_required forbids the allowed models only",
    file: "planFor.ts",
    edits: [["if (is_required)", "if (is_required && allowsModel(request.model))"]],
    laws: ["Q5"]
  },
  {
    fault: "is_required forbids only where the key itself could be used",
    file: "planFor.ts",
    edits: [["if (is_required)", "if (is_required && inRegion(request, endpoint, credential.declared_region))"]],
    laws: []
  },
  {
    fault: "is_byok_only forbids every model",
    file: "planFor.ts",
    edits: [["if (is_byok_only && allowsModel(request.model))", "if (is_byok_only)"]],
    laws: ["Q6"]
  },
  {
    fault: "a credential for others forbids",
    file: "planFor.ts",
    edits: [["if (disabled || !allowsApiKey(request.api_key_hash) || !allowsUser(request.user_id))", "if (disabled)"]],
    laws: []
  },
  {
    fault: "a disabled credential forbids",
    file: "planFor.ts",
    edits: [["if (disabled || ", "if ("]],
    laws: []
  },
  {
    fault: "shared capacity stands in for parked keys",
    file: "planFor.ts",
    edits: [
      [
        "shared: shared.removed.length === 0 ?",
        "shared: credentials.some(({ exclusions }) => exclusions.some(({ reason }) => reason === 'parked')) || shared.removed.length === 0 ?"
      ]
    ],
    laws: ["Q5", "Q7", "Q8"]
  },
  {
    fault: "an altered row leaves shared capacity",
    file: "planFor.ts",
    edits: [[isUnsealed, "if (false) {"]],
    laws: ["Q10"]
  },
  {
    fault: "an altered row that is disabled leaves shared capacity",
    file: "planFor.ts",
    edits: [[isUnsealed, isUnsealed.replace("if (", "if (!disabled && ")]],
    laws: ["Q10"]
  },
  {
    fault: "a key store that does not answer removes shared capacity",
    file: "planFor.ts",
    edits: [[isUnsealed, isUnsealed.replace(' && seal !== "unavailable"', "")]],
    laws: []
  },
  {
    fault: "declared_zdr counts for every kind of endpoint",
    file: "planFor.ts",
    edits: [["(declared && !honours[kind].zdr)", "false"]],
    laws: ["Q11"]
  },
  {
    fault: "shared capacity is used although the endpoint retains",
    file: "planFor.ts",
    edits: [["if (!meetsZdr(request, endpoint, null))", "if (false)"]],
    laws: ["Q11"]
  },
  {
    fault: "declared_region counts for every kind of endpoint",
    file: "planFor.ts",
    edits: [["(honours[kind].region || region === host)", "true"]],
    laws: ["Q12"]
  },
  {
    fault: "the region that a key declares does not contradict the host",
    file: "planFor.ts",
    edits: [["return declared === host && (", "return region === host || declared === host && ("]],
    laws: ["Q12"]
  },
  {
    fault: "on a regional host ZDR is not required",
    file: "planFor.ts",
    edits: [
      ["const meetsZdr = ({ requires_zdr }", "const meetsZdr = ({ host, requires_zdr }"],
      ["if (!requires_zdr) return true", 'if (!requires_zdr || host !== "global") return true']
    ],
    laws: ["Q11", "Q13"]
  },
  {
    fault: "a key that declares global is not in the region of the endpoint",
    file: "planFor.ts",
    edits: [['if (declared === null || declared === "global")', "if (declared === null)"]],
    laws: ["Q14"]
  },
  {
    fault: "a step carries global as a region",
    file: "planFor.ts",
    edits: [['declared_region === "global" ? null : declared_region', "declared_region"]],
    laws: ["Q14"]
  },
  {
    fault: "the strategies are swapped",
    file: "planFor.ts",
    edits: [['request.strategy === "byok_first"', 'request.strategy !== "byok_first"']],
    laws: ["Q16"]
  },
  {
    fault: "what one provider forbids is forbidden to the next",
    file: "planFor.ts",
    edits: [
      [
        "poolOfProvider(target.provider)",
        "request.targets.slice(0, request.targets.indexOf(target) + 1).flatMap(({ provider }) => poolOfProvider(provider))"
      ]
    ],
    laws: ["Q8", "Q17"]
  },
  {
    fault: "a time to retry is given although there are steps",
    file: "planFor.ts",
    edits: [["steps.length === 0 ? earliestEnd(providers) : null", "earliestEnd(providers)"]],
    laws: ["Q18"]
  },
  {
    fault: "a time to retry is that of a key which is also kept out otherwise",
    file: "planFor.ts",
    edits: [["const [only] = exclusions", "const [only] = exclusions.slice(-1)"]],
    laws: ["Q18"]
  },
  {
    fault: "the time to retry is the last end",
    file: "planFor.ts",
    edits: [["only.until < earliest", "only.until > earliest"]],
    laws: ["Q18"]
  },
  {
    fault: "only the first reason is given",
    file: "planFor.ts",
    edits: [["  return found\n}\n\n/** Why the shared", "  return found.slice(0, 1)\n}\n\n/** Why the shared"]],
    laws: ["Q9"]
  },
  {
    fault: "positions count from one",
    file: "planFor.ts",
    edits: [["steps.push(step) - 1", "steps.push(step)"]],
    laws: ["Q8"]
  },
  {
    fault: "a disabled key is offered",
    file: "planFor.ts",
    edits: [["if (exclusions.length === 0)", 'if (exclusions.every(({ reason }) => reason === "disabled"))']],
    laws: ["Q8"]
  }
]

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
  it.each(faults)("is found: $fault", async ({ edits, file, laws }) => {
    const planted = plannerOf({ ...Planning, ...Pooling, ...(await plantedIn<object>(file, edits)) })
    const blind = ["Q1", ...laws].filter((number) => {
      const { law } = planLaws[number] ?? {}
      return law === undefined || !cases.some((given) => breaks(() => law(planted, given)))
    })
    assert.deepStrictEqual(blind, [])
  })

  it("is found by each law of a plan", () => {
    const finding = new Set(["Q1", ...faults.flatMap(({ laws }) => laws)])
    assert.sameMembers([...finding], Object.keys(planLaws))
  })
})
