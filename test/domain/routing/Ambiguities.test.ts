import { assert, describe, it } from "@effect/vitest"
import type { Credential } from "../../../src/domain/Credential.ts"
import type { Endpoint } from "../../../src/domain/routing/Endpoint.ts"
import * as Planning from "../../../src/domain/routing/planFor.ts"
import * as Pooling from "../../../src/domain/routing/Pool.ts"
import type { RoutingRequest } from "../../../src/domain/routing/RoutingRequest.ts"
import { changed, plainRequest, plainRow, plannerOf, type Row } from "./RoutingCase.ts"

const plan = plannerOf({ ...Planning, ...Pooling })

interface Given {
  readonly request?: Partial<RoutingRequest>
  readonly endpoint?: Partial<Endpoint>
  /** Each is named by its place, from 0. */
  readonly credentials: ReadonlyArray<Partial<Credential>>
  readonly row?: Partial<Row>
}

const planOf = ({ credentials, endpoint, request, row }: Given) =>
  plan({
    request: {
      ...plainRequest,
      ...request,
      targets: plainRequest.targets.map((target) => ({ ...target, endpoint: { ...target.endpoint, ...endpoint } }))
    },
    rows: credentials.map((changes, index) => ({ ...changed(plainRow("openai", index), changes), ...row })),
    pick: 0
  })

/** The places of the credentials and `shared`, in order of trial. */
const order = (given: Given) =>
  planOf(given)
    .steps.map((step) => (step._tag === "Own" ? step.credential_id.slice(-1) : "shared"))
    .join(", ")

const parked = { availability: { _tag: "Parked", cause: "rejected", until: 1 } } as const
const others = ["of another list"]
const forbids = { is_required: true }

describe("where the specification can be read in two ways, a plan", () => {
  it.each<[string, Given, string]>([
    [
      "has shared capacity between prioritized and fallback keys (E1)",
      { credentials: [{ is_fallback: true }, {}] },
      "1, shared, 0"
    ],
    [
      "ignores is_required of a credential for other users (E2)",
      { credentials: [{ ...forbids, allowed_user_ids: others }] },
      "shared"
    ],
    [
      "obeys is_required of a credential for other models (E2)",
      { credentials: [{ ...forbids, allowed_models: others }] },
      ""
    ],
    ["ignores is_required of a disabled credential (E3)", { credentials: [{ ...forbids, disabled: true }] }, "shared"],
    ["obeys an enabled is_required without any model (E3)", { credentials: [{ ...forbids, allowed_models: [] }] }, ""],
    ["obeys is_required of a parked credential (E4)", { credentials: [forbids], row: parked }, ""],
    [
      "obeys is_required of a credential that retains (E5)",
      {
        credentials: [{ ...forbids, declared_zdr: false }],
        request: { requires_zdr: true },
        endpoint: { zdr: true }
      },
      ""
    ],
    [
      "obeys is_required of a credential in another region (E5)",
      {
        credentials: [{ ...forbids, declared_region: "us" }],
        request: { host: "europe" },
        endpoint: { region: "europe" }
      },
      ""
    ],
    [
      "is not restricted by is_byok_only without any model (E6)",
      { credentials: [{ is_byok_only: true, allowed_models: [] }] },
      "shared"
    ],
    [
      "takes both flags for is_required (E7)",
      { credentials: [{ is_required: true, is_byok_only: true, allowed_models: others }] },
      ""
    ],
    [
      "goes on to fallback keys when shared capacity is forbidden (E8)",
      { credentials: [{ is_fallback: true }, forbids] },
      "1, 0"
    ],
    [
      "has no key with a list of users for a request without one (E9)",
      { credentials: [{ allowed_user_ids: others }], request: { user_id: null } },
      "shared"
    ],
    [
      "has no key that declares another region, whatever is recorded (E10)",
      { credentials: [{ declared_region: "europe" }], request: { host: "us" }, endpoint: { region: "us" } },
      "shared"
    ],
    [
      "takes a region that the endpoint's kind does not honour for undeclared (E11)",
      {
        credentials: [{ declared_region: "europe" }],
        request: { host: "europe" },
        endpoint: { kind: "pinned", region: "europe" }
      },
      "0, shared"
    ],
    [
      "is not widened by a region that the endpoint's kind does not honour (E11)",
      { credentials: [{ declared_region: "europe" }], request: { host: "europe" }, endpoint: { kind: "pinned" } },
      ""
    ],
    [
      "is widened by a region that it does honour (E11)",
      { credentials: [{ declared_region: "europe" }], request: { host: "europe" } },
      "0"
    ],
    [
      "has a key that declares a region on the global host (E12)",
      { credentials: [{ declared_region: "europe" }] },
      "0, shared"
    ],
    [
      "takes declared_zdr on a private endpoint for undeclared (E13)",
      { credentials: [{ declared_zdr: true }], request: { requires_zdr: true }, endpoint: { kind: "private" } },
      ""
    ],
    [
      "takes it for undeclared on a video endpoint with ZDR (E13)",
      {
        credentials: [{ declared_zdr: true }],
        request: { requires_zdr: true },
        endpoint: { kind: "video", zdr: true }
      },
      "0, shared"
    ],
    [
      "has a key that declares ZDR, but not shared capacity that retains (E14)",
      { credentials: [{ declared_zdr: true }], request: { requires_zdr: true } },
      "0"
    ],
    [
      "needs region and ZDR of one key (E15)",
      {
        credentials: [{ declared_zdr: true }, { declared_region: "us" }, { declared_zdr: true, declared_region: "us" }],
        request: { requires_zdr: true, host: "us" }
      },
      "2"
    ],
    ["has nothing of an altered row's provider (E16)", { credentials: [{}], row: { seal: "altered" } }, ""],
    ["has nothing of an unknown key's (E16)", { credentials: [{}], row: { seal: "unknown_key" } }, ""],
    ["has nothing of an unsupported format's (E16)", { credentials: [{}], row: { seal: "unsupported" } }, ""],
    [
      "has shared capacity when the key store does not answer (E17)",
      { credentials: [{}], row: { seal: "unavailable" } },
      "shared"
    ],
    ["has none then if the columns forbid it (E17)", { credentials: [forbids], row: { seal: "unavailable" } }, ""],
    [
      "compares models verbatim (E18)",
      { credentials: [{ allowed_models: ["A/one", "one", "a/one:free"] }], request: { model: "a/one" } },
      "shared"
    ],
    [
      "goes by the columns where seals were not verified",
      { credentials: [{}, forbids], row: { seal: "unverified" } },
      "0, 1"
    ]
  ])("%s", (_title, given, expected) => {
    assert.strictEqual(order(given), expected)
  })

  it("carries the region that the upstream's address may depend on (E12)", () => {
    const regions = (["europe", "global", null] as const).map((declared_region) => {
      const [step] = planOf({ credentials: [{ declared_region }] }).steps
      return step?._tag === "Own" && step.region
    })
    assert.deepStrictEqual(regions, ["europe", null, null])
  })
})
