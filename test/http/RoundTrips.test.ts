import { Effect, Layer } from "effect"
import { createdId, minimal } from "../support/http/Bodies.ts"
import { TestService } from "../support/http/TestService.ts"
import { assert, layerLive } from "../support/it.ts"
import { Recording } from "../support/process/Recording.ts"

/** Matches statements of requests, unlike those that seal the audit log or delete old records in the background. */
const ofTenants = /\b(api_keys|workspaces|credentials?|credential_parkings|\w+_credential)\b/

/** The statements that begin while a request is answered, once readiness has been checked, which also asks for credentials. */
const statementsOf = Effect.fnUntraced(function* <A, E, R>(request: Effect.Effect<A, E, R>) {
  const { begun } = yield* Recording
  yield* TestService.send({ path: "/health/ready" })
  const before = begun.length
  const answer = yield* request
  const texts = begun.slice(before).map(({ attributes }) => String(attributes.get("db.query.text")))
  return { answer, statements: texts.filter((text) => ofTenants.test(text)) }
})

layerLive(Layer.provideMerge(TestService.layer, Recording.layer))("the statements of a request", (it) => {
  it.effect("get runs two SQL statements: it looks up the API key, then the credential", function* () {
    const tenant = yield* TestService.tenant
    const id = createdId(yield* tenant.create(minimal))
    const { answer, statements } = yield* statementsOf(tenant.get(id))
    assert.deepStrictEqual([answer.status, statements.length], [200, 2])
    const missing = yield* statementsOf(tenant.get("01a1f8c5-a778-7036-916e-4404f7aa8480"))
    assert.deepStrictEqual([missing.answer.status, missing.statements.length], [404, 2])
  })

  it.effect("update runs three SQL statements: it looks up the API key, then the credential, and writes", function* () {
    const tenant = yield* TestService.tenant
    const id = createdId(yield* tenant.create(minimal))
    for (const disabled of [true, false]) yield* tenant.update(id, { disabled })
    const { answer, statements } = yield* statementsOf(tenant.update(id, { disabled: true }))
    assert.deepStrictEqual([answer.status, statements.length], [200, 3])
  })

  it.effect(
    "create looks up the API key, the workspace and marks of leaked keys, and writes: four SQL statements",
    function* () {
      const tenant = yield* TestService.tenant
      yield* tenant.create(minimal)
      const first = yield* statementsOf(tenant.create(minimal))
      assert.deepStrictEqual([first.answer.status, first.statements.length], [201, 4])
      const { workspace_id } = tenant
      const named = yield* statementsOf(tenant.create({ ...minimal, workspace_id }))
      assert.deepStrictEqual([named.answer.status, named.statements.length], [201, 4])
    }
  )
})
