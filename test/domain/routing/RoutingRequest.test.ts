import { assert, describe, it } from "@effect/vitest"
import { Result, Schema } from "effect"
import { issuesOf } from "../../../src/domain/Issue.ts"
import { Provider } from "../../../src/domain/Provider.ts"
import { RoutingRequest } from "../../../src/domain/routing/RoutingRequest.ts"

const decode = Schema.decodeUnknownResult(RoutingRequest, { errors: "all" })

const uuid = "019ad5a0-6c1d-7c44-8d10-5f0e2b4c6a88"
const least = { account_id: uuid, workspace_id: uuid, model: "openai/gpt-4o", targets: [{ provider: "openai" }] }

/** What is wrong with a request, as `path: message`; nothing if it is accepted. */
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
  it("needs a model and a provider; the rest has defaults", () => {
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

  it("may name every provider", () => {
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
    ["targets", withEndpoint({ zdr: 1, shared: null }), twoFlags]
  ])("with %s %j is refused", (member, value, expected) => {
    assert.strictEqual(issues({ ...least, [member]: value }).join(), expected)
  })
})
