import type { Credential } from "../../../src/domain/Credential.ts"
import * as Planning from "../../../src/domain/routing/planFor.ts"
import * as Pasts from "../../../src/domain/routing/Past.ts"
import * as Pooling from "../../../src/domain/routing/Pool.ts"
import { type Around, plainCase, plannerOf } from "./RoutingCase.ts"
import { assert, describe, it } from "../../support/it.ts"

const plan = plannerOf({ ...Pasts, ...Planning, ...Pooling })

const parked = { _tag: "Parked", cause: "rejected", until: 1 } as const
const others = ["of another list"]
const forbids = { is_required: true }

/** A sentence on plans, the indexes of the credentials in the order of attempts, the credentials, and other unusual members. */
const readings: ReadonlyArray<
  readonly [does: string, order: string, credentials: ReadonlyArray<Partial<Credential>>, around?: Around]
> = [
  ["has shared capacity between prioritized and fallback keys (E1)", "1, shared, 0", [{ is_fallback: true }, {}]],
  ["ignores is_required of a credential for other users (E2)", "shared", [{ ...forbids, allowed_user_ids: others }]],
  ["obeys is_required of a credential for other models (E2)", "", [{ ...forbids, allowed_models: others }]],
  ["ignores is_required of a disabled credential (E3)", "shared", [{ ...forbids, disabled: true }]],
  ["obeys is_required of an enabled key that allows no model (E3)", "", [{ ...forbids, allowed_models: [] }]],
  ["obeys is_required of a parked credential (E4)", "", [forbids], { availability: parked }],
  [
    "obeys is_required of a credential that retains data (E5)",
    "",
    [{ ...forbids, declared_zdr: false }],
    { requires_zdr: true, zdr: true }
  ],
  [
    "obeys is_required of a credential in another region (E5)",
    "",
    [{ ...forbids, declared_region: "us" }],
    { host: "europe", region: "europe" }
  ],
  ["ignores is_byok_only of a key that allows no model (E6)", "shared", [{ is_byok_only: true, allowed_models: [] }]],
  ["obeys is_required beside is_byok_only (E7)", "", [{ ...forbids, is_byok_only: true, allowed_models: others }]],
  ["goes on to fallback keys when shared capacity is forbidden (E8)", "1, 0", [{ is_fallback: true }, forbids]],
  [
    "excludes a key that allows only listed users if the request names no user (E9)",
    "shared",
    [{ allowed_user_ids: others }],
    { user_id: null }
  ],
  [
    "excludes a key that declares another region than the host, whatever the endpoint records (E10)",
    "shared",
    [{ declared_region: "europe" }],
    { host: "us", region: "us" }
  ],
  [
    "ignores the declared region of a key if endpoints of this kind do not honour it (E11)",
    "0, shared",
    [{ declared_region: "europe" }],
    { host: "europe", kind: "pinned", region: "europe" }
  ],
  [
    "excludes a key whose declared region is the host's, if endpoints of this kind do not honour it (E11)",
    "",
    [{ declared_region: "europe" }],
    { host: "europe", kind: "pinned" }
  ],
  [
    "includes a key that declares the region of the host (E11)",
    "0",
    [{ declared_region: "europe" }],
    { host: "europe" }
  ],
  ["includes a key that declares a region on the global host (E12)", "0, shared", [{ declared_region: "europe" }]],
  [
    "treats declared_zdr as undeclared on a private endpoint (E13)",
    "",
    [{ declared_zdr: true }],
    { requires_zdr: true, kind: "private" }
  ],
  [
    "treats declared_zdr as undeclared on a video endpoint with ZDR (E13)",
    "0, shared",
    [{ declared_zdr: true }],
    { requires_zdr: true, kind: "video", zdr: true }
  ],
  [
    "includes a key that declares ZDR, but not shared capacity that retains data (E14)",
    "0",
    [{ declared_zdr: true }],
    { requires_zdr: true }
  ],
  [
    "includes only a key that declares both region and ZDR if both are required (E15)",
    "2",
    [{ declared_zdr: true }, { declared_region: "us" }, { declared_zdr: true, declared_region: "us" }],
    { requires_zdr: true, host: "us" }
  ],
  ["uses nothing of a provider with an altered row (E16)", "", [{}], { seal: "altered" }],
  ["uses nothing of a provider with a row sealed by an unknown key (E16)", "", [{}], { seal: "unknown_key" }],
  ["uses nothing of a provider with a row in an unsupported format (E16)", "", [{}], { seal: "unsupported" }],
  [
    "compares the requested model with allow lists verbatim (E18)",
    "shared",
    [{ allowed_models: ["A/one", "one", "a/one:free"] }],
    { model: "a/one" }
  ],
  ["uses a row as it is stored if its seal was not checked", "0, 1", [{}, forbids], { seal: "unverified" }]
]

describe("a plan, where the specification can be read in two ways", () => {
  it.for(readings)("%s", ([, order, credentials, around]) => {
    const places = plan(plainCase(credentials, around)).steps.map((step) =>
      step._tag === "Own" ? step.credential_id.slice(-1) : "shared"
    )
    assert.strictEqual(places.join(", "), order)
  })

  it("names the declared region of each key, which may decide the upstream's address (E12)", () => {
    const regions = (["europe", "global", null] as const).map((declared_region) => {
      const [step] = plan(plainCase([{ declared_region }])).steps
      return step?._tag === "Own" && step.region
    })
    assert.deepStrictEqual(regions, ["europe", null, null])
  })
})
