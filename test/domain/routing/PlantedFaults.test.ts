import { Arbitrary, Effect } from "effect"
import * as Planning from "../../../src/domain/routing/planFor.ts"
import * as Pooling from "../../../src/domain/routing/Pool.ts"
import { type Edit, plantedIn, sourceOf } from "./plantedIn.ts"
import { planLaws } from "./planLaws.ts"
import { anyRoutingCase, plannerOf } from "./RoutingCase.ts"
import { assert, describe, it } from "../../support/it.ts"

/** A fault, the laws that find it besides Q1, which finds every fault, and the changes of the one file that has the texts. */
type Fault = readonly [fault: string, laws: ReadonlyArray<string>, edits: ReadonlyArray<Edit>]

const isUnsealed = 'if (!isTrusted(seal)) reasons.push({ reason: "seal", credential_id'

const faults: ReadonlyArray<Fault> = [
  ["rows are taken in the order in which they come", ["Q2"], [["credentials.toSorted(compare)", "credentials"]]],
  ["sections are mixed", ["Q4"], [["Number(a.is_fallback) - Number(b.is_fallback) ||", ""]]],
  ["ties are not broken by the id", ["Q2"], [["(a.id < b.id ? -1 : 1)", "0"]]],
  [
    "an empty list is taken for none",
    ["Q3", "Q15"],
    [["if (list === null)", "if (list === null || list.length === 0)"]]
  ],
  [
    "a caller without a user is in every short list",
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
    "is_required forbids the allowed models only",
    ["Q5"],
    [["if (is_required)", "if (is_required && allowsModel(request.model))"]]
  ],
  [
    "is_required forbids only where the key itself could be used",
    [],
    [["if (is_required)", "if (is_required && inRegion(request, endpoint, credential.declared_region))"]]
  ],
  [
    "is_byok_only forbids every model",
    ["Q6"],
    [["if (is_byok_only && allowsModel(request.model))", "if (is_byok_only)"]]
  ],
  [
    "a credential for others forbids",
    [],
    [["if (disabled || !allowsApiKey(request.api_key_hash) || !allowsUser(request.user_id))", "if (disabled)"]]
  ],
  ["a disabled credential forbids", [], [["if (disabled || ", "if ("]]],
  [
    "shared capacity stands in for parked keys",
    ["Q5", "Q7", "Q8"],
    [
      [
        "shared: shared.removed.length === 0 ?",
        "shared: credentials.some(({ exclusions }) => exclusions.some(({ reason }) => reason === 'parked')) || shared.removed.length === 0 ?"
      ]
    ]
  ],
  ["an altered row leaves shared capacity", ["Q10"], [[isUnsealed, isUnsealed.replace("if (", "if (false && ")]]],
  [
    "an altered row that is disabled leaves shared capacity",
    ["Q10"],
    [[isUnsealed, isUnsealed.replace("if (", "if (!disabled && ")]]
  ],
  [
    "a key store that does not answer leaves shared capacity",
    ["Q10"],
    [[isUnsealed, isUnsealed.replace("if (", 'if (seal !== "unavailable" && ')]]
  ],
  ["declared_zdr counts for every kind of endpoint", ["Q11"], [["(declared && !honoursDeclared[kind].zdr)", "false"]]],
  [
    "shared capacity is used although the endpoint retains",
    ["Q11"],
    [["if (!meetsZdr(request, endpoint, null))", "if (false)"]]
  ],
  [
    "declared_region counts for every kind of endpoint",
    ["Q12"],
    [["(honoursDeclared[kind].region || region === host)", "true"]]
  ],
  [
    "the region that a key declares does not contradict the host",
    ["Q12"],
    [["return declared === host && (", "return region === host || declared === host && ("]]
  ],
  [
    "on a regional host ZDR is not required",
    ["Q11", "Q13"],
    [
      ["const meetsZdr = ({ requires_zdr }", "const meetsZdr = ({ host, requires_zdr }"],
      ["if (!requires_zdr) return true", 'if (!requires_zdr || host !== "global") return true']
    ]
  ],
  [
    "a key that declares global is not in the region of the endpoint",
    ["Q14"],
    [['if (declared === null || declared === "global")', "if (declared === null)"]]
  ],
  [
    "a step carries global as a region",
    ["Q14"],
    [['declared_region === "global" ? null : declared_region', "declared_region"]]
  ],
  ["the strategies are swapped", ["Q16"], [['request.strategy === "byok_first"', 'request.strategy !== "byok_first"']]],
  [
    "what one provider forbids is forbidden to the next",
    ["Q8", "Q17"],
    [
      [
        "poolOfProvider(target.provider)",
        "request.targets.slice(0, request.targets.indexOf(target) + 1).flatMap(({ provider }) => poolOfProvider(provider))"
      ]
    ]
  ],
  [
    "a time to retry is given although there are steps",
    ["Q18"],
    [["steps.length === 0 ? earliestEnd(providers) : null", "earliestEnd(providers)"]]
  ],
  [
    "a time to retry is that of a key which is also kept out otherwise",
    ["Q18"],
    [["const [only] = exclusions", "const [only] = exclusions.slice(-1)"]]
  ],
  ["the time to retry is the last end", ["Q18"], [["only.until < earliest", "only.until > earliest"]]],
  [
    "only the first reason is given",
    ["Q9"],
    [["  return exclusions\n}\n\n/** Why the shared", "  return exclusions.slice(0, 1)\n}\n\n/** Why the shared"]]
  ],
  ["positions count from one", ["Q8"], [["steps.push(step) - 1", "steps.push(step)"]]],
  [
    "a search that rests passes a provider over",
    ["Q32"],
    [["position: { turn, index }, isPaused: true", "position: { turn: turn + 1, index: 0 }, isPaused: true"]]
  ],
  [
    "a search finds shared capacity that is forbidden",
    ["Q32"],
    [
      [
        "isWanted(provider, undefined) && removalsOf(request, endpoint, pool).length === 0",
        "isWanted(provider, undefined)"
      ]
    ]
  ],
  [
    "a search takes the strategies for each other",
    ["Q32"],
    [['  strategy === "byok_first"\n    ?', '  strategy !== "byok_first"\n    ?']]
  ],
  [
    "a disabled key is offered",
    ["Q8"],
    [["if (exclusions.length === 0)", 'if (exclusions.every(({ reason }) => reason === "disabled"))']]
  ]
]

const files = ["planFor.ts", "Pool.ts"]
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
  it.each(faults)("is found: %s", async (_fault, laws, edits) => {
    const file =
      files.find((name) => edits.every(([text]) => sourceOf(name).includes(text))) ?? assert.fail("no such text")
    const planted = plannerOf({ ...Planning, ...Pooling, ...(await plantedIn<object>(file, edits)) })
    const blind = ["Q1", ...laws].filter((number) => {
      const { law } = planLaws[number] ?? {}
      return law === undefined || !cases.some((routingCase) => breaks(() => law(planted, routingCase)))
    })
    assert.deepStrictEqual(blind, [])
  })

  it("is found by each law of a plan", () => {
    const finding = new Set(["Q1", ...faults.flatMap(([, laws]) => laws)])
    assert.sameMembers([...finding], Object.keys(planLaws))
  })
})
