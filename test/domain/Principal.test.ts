import { Effect, Schema } from "effect"
import { Api } from "../../src/contract/TenantsApi.ts"
import { LinksApi } from "../../src/contract/LinksApi.ts"
import {
  accountOf,
  actingPrincipal,
  Actor,
  actorKinds,
  actorOf,
  ApiKeyRole,
  CurrentPrincipal,
  isAllowed,
  type Principal,
  type Role,
  roleAllows
} from "../../src/domain/Principal.ts"
import { AccountId, ApiKeyHash, LinkId } from "../../src/domain/Identifiers.ts"
import { Purpose } from "../../src/domain/Link.ts"
import { assert, describe, it } from "../support/it.ts"

const reads = "get list status plan events"
const changes = "create update order delete"

/** What each role may do, and nothing else. */
const byTheBook: Readonly<Record<Role, string>> = {
  management: `${reads} ${changes}`,
  viewer: reads,
  ordinary: "route",
  connect: "about create",
  replace: "about get update",
  manage: `about replaceToken apiKeys ${reads} ${changes}`,
  view: `about replaceToken apiKeys ${reads}`,
  in_process: `about replaceToken apiKeys route ${reads} ${changes}`,
  gateway: `about replaceToken apiKeys route ${reads} ${changes}`,
  cli: `${reads} ${changes}`,
  service: ""
}
const roles = Object.keys(byTheBook) as ReadonlyArray<Role>

/** Every endpoint that authenticates, the right to get attempts, and an unknown name. */
const operations = [
  ...Object.keys(Api.groups.byok.endpoints),
  ...Object.keys(LinksApi.groups.links.endpoints),
  "route",
  "unheard of"
]

describe("a role (D51, D53)", () => {
  it.for(roles)("named %s allows exactly the operations listed for it", (role) => {
    const allowed = new Set(byTheBook[role].split(" "))
    for (const operation of operations) {
      assert.strictEqual(roleAllows(role, operation), allowed.has(operation), operation)
    }
  })

  it("is an API key, a link or a trusted caller", () => {
    const trusted = ["in_process", "gateway", "cli", "service"]
    assert.sameMembers([...roles], [...ApiKeyRole.literals, ...Purpose.literals, ...trusted])
    assert.strictEqual(ApiKeyRole.ast.annotations?.["message"], "must be management, viewer or ordinary")
  })
})

const account_id = AccountId.make("0199a5a0-0000-7000-8000-000000000002")
const api_key_hash = ApiKeyHash.make("a".repeat(64))
const link_id = LinkId.make("0199a5a0-0000-7000-8000-000000000001")

describe("a principal", () => {
  it.for<readonly [principal: object, role: Role, actor: Actor]>([
    ...ApiKeyRole.literals.map(
      (role) => [{ kind: "api_key", api_key_hash, role }, role, { kind: "api_key", api_key_hash }] as const
    ),
    ...Purpose.literals.map(
      (purpose) => [{ kind: "link", link_id, purpose, hash: api_key_hash }, purpose, { kind: "link", link_id }] as const
    ),
    ...(["in_process", "gateway", "service"] as const).map((kind) => [{ kind }, kind, { kind }] as const),
    [{ kind: "cli" }, "cli", { kind: "cli" }],
    [{ kind: "cli", user: "alice" }, "cli", { kind: "cli", user: "alice" }]
  ])("%j has the permissions of its role, its account, and its own actor in audit events", ([parts, role, actor]) => {
    const principal = { account_id, ...parts } as Principal
    for (const operation of operations) assert.strictEqual(isAllowed(principal, operation), roleAllows(role, operation))
    assert.deepStrictEqual(actorOf(principal), actor)
    assert.deepStrictEqual(Schema.decodeUnknownSync(Actor)(actor), actor)
    assert.include(actorKinds, actor.kind)
    assert.strictEqual(accountOf(principal), account_id)
  })

  it.effect("returned by actingPrincipal is the caller, if there is one", function* () {
    const principal: Principal = { kind: "gateway", account_id }
    const acting = yield* Effect.provideService(actingPrincipal, CurrentPrincipal, principal)
    assert.strictEqual(acting, principal)
  })

  it.effect("returned by actingPrincipal is the service, without an account, if there is no caller", () =>
    Effect.map(actingPrincipal, (principal) => {
      assert.deepStrictEqual(actorOf(principal), { kind: "service" })
      assert.throws(() => accountOf(principal), "acts in no account")
    })
  )
})
