import { Effect } from "effect"
import { CredentialId } from "../../../src/domain/Identifiers.ts"
import { Parkings } from "../../../src/port/Parkings.ts"
import { CredentialUse } from "../../../src/port/CredentialUse.ts"
import { useFromOutcome } from "../../../src/domain/routing/LastUse.ts"
import { createdId, credentialIn, minimal } from "../../support/http/Bodies.ts"
import { type Parts, TestService } from "../../support/http/TestService.ts"
import { assert, layerLive } from "../../support/it.ts"

const largest = 2_147_483_647

layerLive(TestService.layer)("counters that clients raise", (it) => {
  it.effect("go on beyond 32 bits, in the answers and in the events", function* () {
    const tenant = yield* TestService.newTenant
    const { sql } = yield* TestService
    const id = CredentialId.make(createdId(yield* tenant.create(minimal)))
    yield* sql`UPDATE credentials SET revision = ${largest}, key_version = ${largest} WHERE id = ${id}`
    yield* sql`UPDATE pools SET next_order = ${largest} WHERE account_id = ${tenant.account_id}`
    const orders = [yield* tenant.create(minimal), yield* tenant.create(minimal)]
    assert.deepStrictEqual(
      orders.map((answer) => credentialIn(answer)["sort_order"]),
      [largest, largest + 1]
    )
    for (const name of ["one", "another"]) {
      const answer = yield* tenant.update(id, { name, key: `sk-${name}-9876543210-9876543210-WxYz` })
      assert.strictEqual(answer.status, 200, answer.body)
    }
    const { body } = yield* tenant.events(`?credential_id=${id}`)
    assert.include(body, `"revision":${largest + 2}`)
    assert.include(body, `"key_version":${largest + 2}`)

    const parts = yield* Effect.context<Parts>()
    const key = { account_id: tenant.account_id, credential_id: id }
    const change = { model: "", key_version: largest + 2, epoch: largest + 2, cause: "rejected", strikes: 1 } as const
    yield* Effect.gen(function* () {
      assert.deepStrictEqual(yield* (yield* Parkings).store([{ ...key, ...change, remaining: 60_000 }]), [])
      const use = useFromOutcome({ _tag: "Rejected" }, Date.now(), largest + 2)
      assert.deepStrictEqual(yield* (yield* CredentialUse).store([{ ...key, ...use }]), [])
    }).pipe(Effect.provideContext(parts))
    const status = yield* tenant.send({ method: "GET", path: `/api/v1/byok/${id}/status` })
    assert.include(status.body, '"state":"parked"')
  })
})
