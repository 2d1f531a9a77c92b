import { Effect } from "effect"
import { inject } from "vitest"
import { assert, layerLive } from "../support/it.ts"
import { created, createdId, minimal } from "../support/http/Bodies.ts"
import { eventually } from "../support/process/eventually.ts"
import { adminClient } from "../support/database/freshDatabase.ts"
import { send } from "../support/http/HttpProbe.ts"
import type { Answer } from "../support/http/RawConnection.ts"
import { Recording } from "../support/process/Recording.ts"
import { assertRefused } from "../support/http/Refusal.ts"
import { TestService, withoutTable } from "../support/http/TestService.ts"

/** Requires a 500 whose cause is logged under the request id, as one error. */
const assertFailed = Effect.fnUntraced(function* (answer: Answer, cause: string) {
  assertRefused(answer, "InternalError")
  const { logs } = yield* Recording
  const entries = logs.filter(({ request_id }) => request_id === answer.headers["x-request-id"])
  assert.deepStrictEqual(
    entries.map(({ level }) => level),
    ["Error"]
  )
  assert.include(entries[0]?.text, cause)
})

const undefinedTable = "42P01"

layerLive(TestService.recordedWith({}))("500 (section 7, D11)", (it) => {
  it.effect.each([
    ["api_keys", undefinedTable],
    ["credentials", undefinedTable],
    ["workspaces", undefined]
  ] as const)(
    "create and get without the table %s, which fails get: %s; no row is stored (D11)",
    function* ([table, cause]) {
      const { create, get } = yield* TestService.tenant
      const id = createdId(yield* create(minimal))
      const asked = withoutTable(table, Effect.all([create(minimal), get(id)]))
      const [failed, found] = yield* TestService.storing(0, asked)
      yield* assertFailed(failed, undefinedTable)
      if (cause !== undefined) yield* assertFailed(found, cause)
      else assert.strictEqual(found.status, 200)
      assert.strictEqual((yield* get(id)).status, 200)
    }
  )

  it.effect(
    "the database refuses the row: the answer does not repeat its message, which quotes the row (D11)",
    function* () {
      const { sql } = yield* TestService
      const { create } = yield* TestService.tenant
      const refused = Effect.acquireUseRelease(
        Effect.orDie(
          sql`ALTER TABLE credentials ADD CONSTRAINT name_of_another_length CHECK (char_length(name) <> 18)`
        ),
        () => create({ ...minimal, name: "a-canary-of-a-name" }),
        () => Effect.orDie(sql`ALTER TABLE credentials DROP CONSTRAINT name_of_another_length`)
      )
      yield* assertFailed(yield* TestService.storing(0, refused), "23514 name_of_another_length")
      assert.notInclude(yield* (yield* Recording).all, "a-canary-of-a-name")
    }
  )

  it.effect("get of an invalid row (D11)", function* () {
    const { sql } = yield* TestService
    const { create, get } = yield* TestService.tenant
    const id = createdId(yield* create(minimal))
    yield* sql`UPDATE credentials SET created_at = 'infinity' WHERE id = ${id}`
    yield* assertFailed(yield* get(id), "Unexpected failure")
  })

  it.effect("the database is down: live but not ready, until it is back (D11)", function* () {
    const { databaseUrl, rowCount, url } = yield* TestService
    const { create, get } = yield* TestService.tenant
    const id = createdId(yield* create(minimal))
    const before = yield* rowCount
    const server = yield* adminClient(inject("serverUrl"))
    const name = /\/(byok_test_\w+)/.exec(databaseUrl)?.[1] ?? ""
    const allow = (answer: boolean) => Effect.orDie(server.unsafe(`ALTER DATABASE ${name} ALLOW_CONNECTIONS ${answer}`))
    yield* Effect.acquireUseRelease(
      allow(false),
      () =>
        Effect.gen(function* () {
          yield* server`SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = ${name}`
          yield* assertFailed(yield* create(minimal), "DatabaseFailure")
          yield* assertFailed(yield* get(id), "DatabaseFailure")
          // The answer of up to a second ago is kept.
          const readiness = send(url, { path: "/health/ready" })
          yield* eventually("it is not ready", readiness, ({ status }) => status !== 200)
          const ready = yield* readiness
          assertRefused(ready, "ServiceUnavailable")
          assert.isDefined(ready.headers["retry-after"])
          assert.strictEqual((yield* send(url, { path: "/health/live" })).body, '{"status":"live"}')
        }),
      () => allow(true)
    )
    yield* eventually("it is ready again", send(url, { path: "/health/ready" }), ({ status }) => status === 200)
    assert.strictEqual((yield* get(id)).status, 200)
    assert.strictEqual(yield* rowCount, before)
    created(yield* create(minimal))
  })
})
