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
import { TestService } from "../support/http/TestService.ts"

/** Requires a refusal whose cause is logged under the request id, as one error. */
const assertFailed = Effect.fnUntraced(function* (answer: Answer, refusal: "InternalError" | "ServiceUnavailable") {
  assertRefused(answer, refusal)
  const { logs } = yield* Recording
  const entries = logs.filter(({ request_id }) => request_id === answer.headers["x-request-id"])
  assert.deepStrictEqual(
    entries.map(({ level }) => level),
    ["Error"]
  )
  assert.include(entries[0]?.text, "DatabaseFailure")
})

layerLive(TestService.recordedWith({}))("a service whose database is down (section 7, D11)", (it) => {
  it.effect("answers 500, a read 503, and is live but not ready, while it takes no connections (D11)", function* () {
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
          yield* assertFailed(yield* create(minimal), "InternalError")
          yield* assertFailed(yield* get(id), "ServiceUnavailable")
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
