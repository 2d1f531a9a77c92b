import { Arbitrary, Exit, Redacted, Schema } from "effect"
import { NewRoute, Report, RouteReport } from "../../src/gateway/GatewayApi.ts"
import { isPlainReport, isPlainRouteReport, plainNewRoute } from "../../src/gateway/plainBodies.ts"
import { elementOf, integer } from "../support/memory/arbitraries.ts"
import { assert, describe, it } from "../support/it.ts"

const id = "01a20982-acc4-729c-ac1e-f6ee483b1ae1"
const values: ReadonlyArray<unknown> = [
  ...[null, true, false, 0, -0, -1, 1.5, 100, 599, 600, 600_000, 600_001, 2 ** 53, "", "a", "a\0", "\ud800", "global"],
  ...["europe", "video", "azure", "byok_first", "provider_first", "a".repeat(255), "a".repeat(256), "😀".repeat(200)],
  ...[id, id.toUpperCase(), "0".repeat(64), "g".repeat(64), [], {}, [null], ["a", 1, null], Array(21).fill("a")],
  ...[Array(101).fill({}), [{}], [{ provider: "azure" }, { provider: "openai", endpoint: {} }]],
  ...[[{ provider: "azure", endpoint: { zdr: true } }], Array(2).fill({ provider: "azure" }), [{ provider: "none" }]],
  ...[{ kind: "video", region: "us", zdr: true, shared: false }, { kind: "none" }, { region: "none" }, { more: 1 }]
]

/** Requests as they are sent, with some members at any depth that have another value, miss or are unknown. */
const changed = (given: object) => {
  const places = Arbitrary.all({
    path: integer(0, 40),
    value: elementOf(values),
    removed: elementOf([false, false, true])
  })
  return Arbitrary.map(Arbitrary.array(places, { maxLength: 3 }), (changes) => {
    const made = structuredClone(given)
    for (const { path, removed, value } of changes) {
      const owners: Array<object> = []
      const collect = (owner: object) => {
        owners.push(owner)
        for (const one of Object.values(owner)) if (typeof one === "object" && one !== null) collect(one as object)
      }
      collect(made)
      const owner = owners[path % owners.length] ?? made
      const names = [...Object.keys(owner), ...(Array.isArray(owner) ? [] : ["zdr", "more"])]
      const name = names[path % Math.max(1, names.length)] ?? "0"
      if (removed) Reflect.deleteProperty(owner, name)
      else Reflect.set(owner, name, structuredClone(value))
    }
    // What JSON can say.
    return JSON.parse(JSON.stringify(made)) as unknown
  })
}

const options = { errors: "all", onExcessProperty: "error" } as const
/** As text, in which the order of members does not count. */
const shown = (decoded: unknown): string =>
  JSON.stringify(decoded, (_, value: unknown) => {
    if (Redacted.isRedacted(value)) return { hidden: Redacted.value(value) }
    if (typeof value !== "object" || value === null || Array.isArray(value)) return value
    return Object.fromEntries(Object.entries(value).sort(([one], [other]) => (one < other ? -1 : 1)))
  })

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

type Decode = (given: unknown) => unknown

describe("what is decoded by hand", () => {
  const bodies: ReadonlyArray<
    readonly [what: string, whole: object, given: Arbitrary.Arbitrary<unknown>, plain: Decode, decode: Decode]
  > = [
    [
      "a request to route",
      { ...route, reports: [] },
      Arbitrary.flatMap(
        elementOf<object>([route, { model: "a/model", targets: route.targets, api_key: "k" }]),
        changed
      ),
      (given: unknown) => plainNewRoute(given),
      Schema.decodeUnknownExit(NewRoute, options)
    ],
    [
      "a report",
      report,
      changed(report),
      (given: unknown) => (isPlainReport(given) ? given : undefined),
      Schema.decodeUnknownExit(Report, options)
    ],
    [
      "a report that came along",
      { ...report, route: id, attempt: 1 },
      changed({ ...report, route: id, attempt: 1 }),
      (given: unknown) => (isPlainRouteReport(given) ? given : undefined),
      Schema.decodeUnknownExit(RouteReport, options)
    ]
  ]

  it.effect.each(bodies)(
    "of %s is what its schema decodes, in all but rare forms",
    function* ([, whole, given, plain, decode]) {
      let [taken, left] = [0, 0]
      const isSame = (input: unknown) => {
        const found = plain(input)
        const decoded = decode(input) as Exit.Exit<unknown, unknown>
        if (found === undefined) left += Number(Exit.isSuccess(decoded))
        else taken += 1
        return found === undefined || (Exit.isSuccess(decoded) && shown(found) === shown(decoded.value))
      }
      for (const name of Object.keys(whole)) {
        for (const value of values) assert.isTrue(isSame({ ...whole, [name]: value }), `${name}: ${String(value)}`)
      }
      const checked = yield* Arbitrary.checkEffect(given, isSame, { runs: 4_000 })
      assert.strictEqual(checked._tag, "Passed", Arbitrary.formatCheckFailure(checked))
      assert.isAbove(taken, 1_000)
      assert.isBelow(left, taken / 5, "accepted by the schema alone")
    }
  )
})
