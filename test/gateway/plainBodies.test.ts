import { Arbitrary, Schema } from "effect"
import { NewRoute, Report, RouteReport } from "../../src/gateway/GatewayApi.ts"
import { isPlainReport, isPlainRouteReport, plainNewRoute } from "../../src/gateway/plainBodies.ts"
import { elementOf } from "../support/memory/arbitraries.ts"
import { changed, decodesAs, type PlainDecoding } from "../support/memory/plainDecoding.ts"
import { describe, it } from "../support/it.ts"

const id = "01a20982-acc4-729c-ac1e-f6ee483b1ae1"
const values: ReadonlyArray<unknown> = [
  ...[null, true, false, 0, -0, -1, 1.5, 100, 599, 600, 600_000, 600_001, 2 ** 53, "", "a", "a\0", "\ud800", "global"],
  ...["europe", "video", "azure", "byok_first", "provider_first", "a".repeat(255), "a".repeat(256), "😀".repeat(200)],
  ...[id, id.toUpperCase(), "0".repeat(64), "g".repeat(64), [], {}, [null], ["a", 1, null], Array(21).fill("a")],
  ...[Array(101).fill({}), [{}], [{ provider: "azure" }, { provider: "openai", endpoint: {} }]],
  ...[[{ provider: "azure", endpoint: { zdr: true } }], Array(2).fill({ provider: "azure" }), [{ provider: "none" }]],
  ...[{ kind: "video", region: "us", zdr: true, shared: false }, { kind: "none" }, { region: "none" }, { more: 1 }]
]

const options = { errors: "all", onExcessProperty: "error" } as const
const route = {
  account_id: id,
  workspace_id: null,
  credential_id: id,
  model: "a/model",
  user_id: "u",
  api_key_hash: "0".repeat(64),
  host: "global",
  requires_zdr: false,
  freshness_ms: 0,
  explain: false,
  strategy: "byok_first",
  reports: [{}],
  targets: [{ provider: "azure", endpoint: { kind: "standard", region: null, zdr: false, shared: false } }]
}
const report = { status: 200, retry_after: "30", codes: ["a", 1, null], abandoned: false }

describe("what is decoded by hand", () => {
  const bodies: ReadonlyArray<readonly [what: string, ...PlainDecoding]> = [
    [
      "a request to route",
      { ...route, reports: [] },
      Arbitrary.flatMap(
        elementOf<object>([route, { model: "a/model", targets: route.targets, api_key: "k" }]),
        (given) => changed(values, given)
      ),
      (given: unknown) => plainNewRoute(given),
      Schema.decodeUnknownExit(NewRoute, options)
    ],
    [
      "a report",
      report,
      changed(values, report),
      (given: unknown) => (isPlainReport(given) ? given : undefined),
      Schema.decodeUnknownExit(Report, options)
    ],
    [
      "a report that came along",
      { ...report, route: id, attempt: 1 },
      changed(values, { ...report, route: id, attempt: 1 }),
      (given: unknown) => (isPlainRouteReport(given) ? given : undefined),
      Schema.decodeUnknownExit(RouteReport, options)
    ]
  ]

  it.effect.each(bodies)("of %s is what its schema decodes, in all but rare forms", ([, ...given]) =>
    decodesAs(values, ...given)
  )
})
