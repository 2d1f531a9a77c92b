import { Arbitrary, Effect, Result, Schema } from "effect"
import { issuesOf } from "../../../src/domain/Issue.ts"
import { Provider } from "../../../src/domain/Provider.ts"
import { PlanRequest, RoutingRequest, routingFields } from "../../../src/domain/routing/RoutingRequest.ts"
import { planByTheBook } from "./planByTheBook.ts"
import { propertyRuns } from "./propertyRuns.ts"
import { anyRoutingCase, type RoutingCase } from "./RoutingCase.ts"
import { assert, describe, it } from "../../support/it.ts"

const decode = Schema.decodeUnknownResult(RoutingRequest, { errors: "all" })

const uuid = "019ad5a0-6c1d-7c44-8d10-5f0e2b4c6a88"
const least = { account_id: uuid, workspace_id: uuid, model: "openai/gpt-4o", targets: [{ provider: "openai" }] }

/** The issues of a request, as `path: message`; empty if it is accepted. */
const issues = (request: unknown): ReadonlyArray<string> =>
  Result.match(decode(request), {
    onFailure: ({ issue }) => issuesOf(issue).map(({ message, path }) => `${path.join(".")}: ${message}`),
    onSuccess: () => []
  })

const withEndpoint = (endpoint: unknown) => [{ provider: "openai", endpoint }]
const kinds = "standard, private, pinned, cross_region or video"
const regions = "global, europe, us or null"
const twoFlags = "targets.0.endpoint.zdr: must be true or false,targets.0.endpoint.shared: must be true or false"
const targetsOf = (providers: ReadonlyArray<string>) => providers.map((provider) => ({ provider }))

describe("a routing request", () => {
  it("requires account, workspace, model and one target; the other members have defaults", () => {
    assert.deepEqual(Result.getOrThrow(decode(least)), {
      ...least,
      api_key_hash: null,
      user_id: null,
      host: "global",
      requires_zdr: false,
      targets: [{ provider: "openai", endpoint: { kind: "standard", region: null, zdr: false, shared: true } }],
      strategy: "byok_first"
    } as never)
  })

  it("may name every known provider", () => {
    assert.deepStrictEqual(issues({ ...least, targets: targetsOf(Provider.literals) }), [])
  })

  it("may have a model of 255 characters", () => {
    assert.deepStrictEqual(issues({ ...least, model: "\u{1f600}".repeat(255) }), [])
  })

  it.each<[string, unknown, string]>([
    ["model", "", "model: must not be empty"],
    ["model", "x".repeat(256), "model: must have at most 255 characters"],
    ["model", "\0", "model: must not contain U+0000 or half of a surrogate pair"],
    ["model", null, "model: must be a string"],
    ["host", "asia", "host: must be global, europe or us"],
    ["host", null, "host: must be global, europe or us"],
    ["api_key_hash", "A", "api_key_hash: must be 64 lowercase hexadecimal characters"],
    ["api_key_hash", 1, "api_key_hash: must be a string or null"],
    ["user_id", 1, "user_id: must be a string or null"],
    ["requires_zdr", null, "requires_zdr: must be true or false"],
    ["strategy", "cheapest", "strategy: must be byok_first or provider_first"],
    ["user_id", "u".repeat(256), "user_id: must have at most 255 characters"],
    ["targets", [], "targets: must have at least 1 element"],
    ["targets", {}, "targets: must be a list of objects"],
    ["targets", ["openai"], "targets.0: must be an object"],
    ["targets", [{}], "targets.0.provider: is required"],
    ["targets", targetsOf(["unheard-of"]), "targets.0.provider: must be a known provider slug"],
    ["targets", targetsOf(["openai", "azure", "openai"]), "targets: must name each provider once"],
    ["targets", targetsOf([...Provider.literals, "openai"]), "targets: must have at most 115 elements"],
    ["targets", withEndpoint(null), "targets.0.endpoint: must be an object"],
    ["targets", withEndpoint({ kind: "fast" }), `targets.0.endpoint.kind: must be ${kinds}`],
    ["targets", withEndpoint({ region: "asia" }), `targets.0.endpoint.region: must be ${regions}`],
    ["targets", withEndpoint({ zdr: 1, shared: null }), twoFlags],
    ["zdr", true, `zdr: unknown member; known: ${Object.keys(routingFields).join(", ")}`],
    ["targets", [{ provider: "openai", shared: false }], "targets.0.shared: unknown member; known: provider, endpoint"],
    ["targets", withEndpoint({ ZDR: true }), "targets.0.endpoint.ZDR: unknown member; the nearest is zdr"]
  ])("with %s %j is refused: %s", (member, value, expected) => {
    assert.strictEqual(issues({ ...least, [member]: value }).join(), expected)
  })
})

type Json = Record<string, unknown>
type Path = ReadonlyArray<string | number>

/** Every object of a request with its path. */
const objectsIn = (value: unknown, path: Path = []): ReadonlyArray<readonly [Path, Json]> => {
  if (typeof value !== "object" || value === null) return []
  const inner = Object.entries(value).flatMap(([name, part]) =>
    objectsIn(part, [...path, Array.isArray(value) ? Number(name) : name])
  )
  return Array.isArray(value) ? inner : [[path, value as Json], ...inner]
}

const misspellings: ReadonlyArray<(name: string) => string> = [
  (name) => name.toUpperCase(),
  (name) =>
    name.replace(/_(.)/g, (_, letter: string) => letter.toUpperCase()).replace(/^./, (one) => one.toUpperCase()),
  (name) => name.slice(0, -1),
  (name) => `${name}s`,
  (name) => ` ${name}`,
  (name) => `x-${name}`,
  (name) => name.replace(/^.*_|$/, "_"),
  () => "__proto__",
  () => "constructor"
]

/** A request as JSON in which a misspelt or misplaced member replaces the right one or stands beside it. */
const misspelt = ({ pick, request }: RoutingCase) => {
  const body = JSON.parse(JSON.stringify(request)) as Json
  const objects = objectsIn(body)
  const members = objects.flatMap(([path, object]) => Object.keys(object).map((member) => ({ member, object, path })))
  const { member, object, path } = members[pick % members.length] ?? assert.fail("no member")
  const way = Math.floor(pick / members.length)
  const others = objects.filter(([other]) => other.length !== path.length && !other.includes(member))
  const other = way % 2 === 0 ? undefined : others[way % others.length]
  const typo = misspellings[way % misspellings.length]?.(member) ?? ""
  const [name, [place, target]] = other === undefined ? [typo, [path, object] as const] : [member, other]
  const value = object[member]
  if (way % 3 !== 0) Reflect.deleteProperty(object, member)
  Object.defineProperty(target, name, { value, enumerable: true })
  return { body, name, path: place }
}

/** Fails unless a misspelt request is refused with the name of the member, or plans like the right request. */
const neverWeaker = (schema: Schema.ConstraintDecoder<RoutingRequest>, one: RoutingCase) => {
  const { body, name, path } = misspelt(one)
  Result.match(Schema.decodeUnknownResult(schema, { errors: "all" })(body), {
    onSuccess: (request) => assert.deepStrictEqual(planByTheBook({ ...one, request }), planByTheBook(one)),
    onFailure: ({ issue }) => {
      const unknown = issuesOf(issue).filter(({ message }) => message.startsWith("unknown member;"))
      const isShown = /^[\w.[\]-]{1,20}$/.test(name)
      assert.deepStrictEqual(
        unknown.map((found) => found.path),
        [isShown ? [...path, name] : path]
      )
    }
  })
}

describe("a request with a misspelt or misplaced member (Q31)", () => {
  it.prop(
    "is refused with the name of the unknown member, at any depth",
    [anyRoutingCase],
    ([one]) => neverWeaker(RoutingRequest, one),
    propertyRuns
  )

  it("could use more shared capacity if unknown members were ignored (control)", () => {
    const cases = Effect.runSync(Arbitrary.sampleEffect(anyRoutingCase, { count: 2000, seed: "misspelt" }))
    const open = Schema.decodeUnknownResult(Schema.Struct(routingFields))
    const sharedIn = (one: RoutingCase) => planByTheBook(one).steps.filter((step) => step.endsWith(" shared")).length
    const costsMore = (one: RoutingCase) => {
      const decoded = open(misspelt(one).body)
      return Result.isSuccess(decoded) && sharedIn({ ...one, request: decoded.success }) > sharedIn(one)
    }
    assert.isTrue(cases.some(costsMore))
  })

  it("is refused even by a decoder set to ignore unknown members, and in a tenant's plan request", () => {
    const { account_id, ...asked } = least
    for (const [schema, request] of [
      [RoutingRequest, { ...least, requires_ZDR: true }],
      [PlanRequest, { ...asked, targets: [{ provider: "openai", shared: false }] }],
      [PlanRequest, { ...asked, account_id }]
    ] as const) {
      assert.isTrue(Result.isFailure(Schema.decodeUnknownResult(schema, { onExcessProperty: "ignore" })(request)))
    }
  })
})
