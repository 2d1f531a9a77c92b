import { Effect } from "effect"
import { Api } from "../../src/contract/TenantsApi.ts"
import { LinksApi } from "../../src/contract/LinksApi.ts"
import { accountOf, actingPrincipal, actorOf, ApiKeyRole, type Role, roleAllows } from "../../src/domain/Principal.ts"
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

/** Every endpoint that authenticates, and what the socket does with a token. */
const operations = [
  ...Object.keys(Api.groups.byok.endpoints),
  ...Object.keys(LinksApi.groups.links.endpoints),
  "route",
  "unheard of"
]

describe("a role (D51, D53)", () => {
  it.for(roles)("lets %s do exactly what the table says", (role) => {
    const allowed = new Set(byTheBook[role].split(" "))
    for (const operation of operations) {
      assert.strictEqual(roleAllows(role, operation), allowed.has(operation), operation)
    }
  })

  it("is an API key, a link or a trusted caller", () => {
    const trusted = ["in_process", "gateway", "cli", "service"]
    assert.sameMembers([...roles], [...ApiKeyRole.literals, ...Purpose.literals, ...trusted])
  })
})

describe("a principal", () => {
  it.effect("is the service, in no account, if nobody else acts", () =>
    Effect.map(actingPrincipal, (principal) => {
      assert.deepStrictEqual(actorOf(principal), { kind: "service" })
      assert.throws(() => accountOf(principal), "acts in no account")
    })
  )
})
