import { Context, Effect, Layer } from "effect"
import { CredentialRepository } from "../../src/port/CredentialRepository.ts"
import { Credentials } from "../../src/port/Credentials.ts"
import { Prefetched } from "../../src/runtime/Prefetched.ts"
import { WorkspaceResolver } from "../../src/port/AccountRepository.ts"
import * as CredentialsLive from "../../src/service/credentials/Credentials.ts"
import { createdId, minimal } from "../support/http/Bodies.ts"
import { type Parts, TestService } from "../support/http/TestService.ts"
import { assert, layerLive } from "../support/it.ts"
import { Recording } from "../support/process/Recording.ts"

/** Matches statements of requests, unlike those that seal the audit log or delete old records in the background. */
const ofTenants = /\b(api_keys|workspaces|credentials)\b/

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
  it.effect("get runs one SQL statement: the look-up of the API key also reads the credential", function* () {
    const tenant = yield* TestService.tenant
    const id = createdId(yield* tenant.create(minimal))
    const { answer, statements } = yield* statementsOf(tenant.get(id))
    assert.deepStrictEqual([answer.status, statements.length], [200, 1])
    assert.include(statements[0], "credentials.account_id = api_keys.account_id")
    const missing = yield* statementsOf(tenant.get("01a1f8c5-a778-7036-916e-4404f7aa8480"))
    assert.deepStrictEqual([missing.answer.status, missing.statements.length], [404, 1])
  })

  it.effect("update runs two SQL statements: the look-up of the API key also reads the credential", function* () {
    const tenant = yield* TestService.tenant
    const id = createdId(yield* tenant.create(minimal))
    for (const disabled of [true, false]) yield* tenant.update(id, { disabled })
    const { answer, statements } = yield* statementsOf(tenant.update(id, { disabled: true }))
    assert.deepStrictEqual([answer.status, statements.length], [200, 2])
    assert.include(statements[0], "credentials.account_id = api_keys.account_id")
  })

  it.effect("create runs two SQL statements in the default workspace, and three if it names a workspace", function* () {
    const tenant = yield* TestService.tenant
    yield* tenant.create(minimal)
    const first = yield* statementsOf(tenant.create(minimal))
    assert.deepStrictEqual([first.answer.status, first.statements.length], [201, 2])
    const { workspace_id } = tenant
    const named = yield* statementsOf(tenant.create({ ...minimal, workspace_id }))
    assert.deepStrictEqual([named.answer.status, named.statements.length], [201, 3])
  })
})

/** The calls of adapters that ignore prefetched rows. */
const asked: Array<string> = []
const elsewhere = Effect.gen(function* () {
  const parts = yield* Effect.context<Parts>()
  const [repository, workspaces] = [Context.get(parts, CredentialRepository), Context.get(parts, WorkspaceResolver)]
  const withoutPrefetched = Effect.provideService(Prefetched, undefined)
  const replaced = parts.pipe(
    Context.add(CredentialRepository, {
      ...repository,
      findById: (account_id, id) => {
        asked.push("credential")
        return withoutPrefetched(repository.findById(account_id, id))
      }
    }),
    Context.add(WorkspaceResolver, {
      resolve: (account_id, requested) => {
        asked.push("workspace")
        return withoutPrefetched(workspaces.resolve(account_id, requested))
      }
    })
  )
  return Context.add(replaced, Credentials, yield* Effect.provideContext(CredentialsLive.make, replaced))
})

layerLive(TestService.layerWith({ parts: elsewhere }))("adapters that replace those of PostgreSQL", (it) => {
  it.effect(
    "are called by create and get, although the look-up of the API key has already read the rows",
    function* () {
      const tenant = yield* TestService.tenant
      const id = createdId(yield* tenant.create(minimal))
      assert.strictEqual((yield* tenant.get(id)).status, 200)
      assert.deepStrictEqual(asked, ["workspace", "credential"])
    }
  )
})
