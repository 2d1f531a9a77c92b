import { Api } from "../../src/contract/TenantsApi.ts"
import { GatewayApi } from "../../src/contract/GatewayApi.ts"
import { createdId, unknownId } from "../support/http/Bodies.ts"
import { TestService } from "../support/http/TestService.ts"
import { assert, layerLive } from "../support/it.ts"
import { ask, openSocket, own } from "./socket.ts"

const key = "sk-0123456789-0123456789-AbCd"
const operations = Object.values(Api.groups.byok.endpoints)

layerLive(TestService.layer)("the operations on credentials over the socket for gateways", (it) => {
  it.effect("are those of the API, each for the account in its path only, which must exist (D5, T6)", function* () {
    const here = Object.values(GatewayApi.groups.credentials.endpoints)
    assert.deepStrictEqual(
      here.map(({ method, path }) => [method, path.replace("/v1/accounts/:account_id/credentials", "/api/v1/byok")]),
      operations.map(({ method, path }) => [method, path])
    )
    const { newTenant } = yield* TestService
    const [tenant, stranger] = [yield* newTenant, yield* newTenant]
    const id = createdId(yield* tenant.create({ provider: "azure", key }))
    const path = yield* openSocket
    const bodies: Record<string, object> = {
      create: { provider: "azure", key },
      update: { name: "mine" },
      order: { provider: "azure", ids: [id] },
      plan: { model: "a/model", targets: [own] }
    }
    for (const account of [stranger.account_id, unknownId, "none", tenant.account_id]) {
      for (const [name, { method, path: template }] of Object.entries(GatewayApi.groups.credentials.endpoints)) {
        if (account === tenant.account_id && name === "create") continue
        const at = template.replace(":account_id", account).replace(":id", id)
        const { status, text } = yield* ask(path, method, at, bodies[name])
        const isOwn = account === tenant.account_id
        if (isOwn) assert.strictEqual(status, 200, `${name} ${text}`)
        else if (account !== stranger.account_id || template.includes(":id"))
          assert.strictEqual(status, 404, `${method} ${at}`)
        else assert.notInclude(text, id, name)
      }
    }
  })

  it.effect("have the gateway as actor in their events", function* () {
    const tenant = yield* (yield* TestService).newTenant
    const path = yield* openSocket
    const at = `/v1/accounts/${tenant.account_id}/credentials`
    const once = { "Idempotency-Key": "once" }
    const [made, again] = [
      yield* ask(path, "POST", at, { provider: "azure", key }, once),
      yield* ask(path, "POST", at, { provider: "azure", key }, once)
    ]
    assert.deepStrictEqual([made.status, again.status, again.replayed], [201, 201, true], made.text)
    assert.notInclude(made.text, key)
    const { data } = JSON.parse(made.text) as { data: { id: string } }
    assert.strictEqual((yield* tenant.get(data.id)).body, made.text, "as the tenant gets it")
    const events = yield* ask(path, "GET", `${at}/events?credential_id=${data.id}`)
    assert.include(events.text, '"actor":{"kind":"gateway"}')
  })
})
