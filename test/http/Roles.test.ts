import { Effect, Redacted } from "effect"
import { Api } from "../../src/contract/TenantsApi.ts"
import { Accounts } from "../../src/service/accounts/Accounts.ts"
import { createdId, minimal } from "../support/http/Bodies.ts"
import { bearer, json } from "../support/http/HttpProbe.ts"
import { assertRefused } from "../support/http/Refusal.ts"
import { TestService } from "../support/http/TestService.ts"
import { assert, layerLive } from "../support/it.ts"
import { databaseContent } from "../support/keys/leakSearch.ts"

/** Bodies that the operations accept of a management key. */
const bodies: Readonly<Record<string, (id: string) => object>> = {
  create: () => ({ ...minimal, provider: "cohere" }),
  order: (id) => ({ provider: minimal.provider, ids: [id] }),
  plan: () => ({ model: "m", targets: [{ provider: minimal.provider }] }),
  update: () => ({ name: "another" })
}

layerLive(TestService.layer)("the roles of API keys (D4, D51)", (it) => {
  it.effect.each([
    ["viewer", "get, list, status, plan and events only", ["get", "list", "status", "plan", "events"]],
    ["ordinary", "no operation", []]
  ] as const)(
    "an API key of role %s may call %s; a forbidden call is 403 and changes nothing",
    function* ([role, , mayDo]) {
      const { sql } = yield* TestService
      const tenant = yield* TestService.newTenant
      const { issueApiKey } = yield* Accounts
      const { key } = yield* issueApiKey(tenant.account_id, { name: "support", role })
      const id = createdId(yield* tenant.create(minimal))
      const credentials = Effect.map(databaseContent(sql), (content) =>
        content.split("\n").filter((line) => line.includes(id))
      )
      const before = yield* credentials
      const allowed: Array<string> = []
      const endpoints = Object.entries(Api.groups.byok.endpoints)
      assert.isAtLeast(endpoints.length, 9)
      for (const [name, { method, path }] of endpoints) {
        const body = bodies[name]?.(id)
        const request = {
          method,
          path: path.replace(":id", id),
          ...(body === undefined ? {} : { body: JSON.stringify(body) })
        }
        const answer = yield* TestService.send({ ...request, headers: [bearer(Redacted.value(key)), json] })
        if (answer.status === 200) allowed.push(name)
        else assertRefused(answer, "Forbidden")
      }
      assert.sameMembers(allowed, Array.from<string>(mayDo))
      assert.deepStrictEqual(yield* credentials, before)
      for (const [name, { method, path }] of endpoints) {
        const body = bodies[name]?.(id)
        const answer = yield* tenant.send({
          method,
          path: path.replace(":id", id),
          ...(body === undefined ? {} : { headers: [json], body: JSON.stringify(body) })
        })
        assert.isBelow(answer.status, 300, `${name}, of a management key (control)`)
      }
    }
  )
})
