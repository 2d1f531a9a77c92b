import { assert } from "@effect/vitest"
import { Effect, Layer } from "effect"
import { HttpServer } from "effect/http"
import * as Byok from "../../src/Byok.ts"
import * as Server from "../../src/http/Server.ts"
import { layerLive } from "../support/process/layerLive.ts"
import { created, createdId, minimal } from "../support/http/Bodies.ts"
import { settingsFor } from "../support/database/freshDatabase.ts"
import { get, send } from "../support/http/HttpProbe.ts"
import { assertHeaders, assertRefused } from "../support/http/Refusal.ts"
import { TestService } from "../support/http/TestService.ts"

const ready = { path: "/health/ready" }

layerLive(TestService.layer)("the health endpoints", (it) => {
  it.effect.each([
    { path: "/health/live", body: '{"status":"live"}' },
    { path: "/health/ready", body: '{"status":"ready"}' }
  ])("$path answers 200, with and without a key", ({ body, path }) =>
    Effect.gen(function* () {
      const { url } = yield* TestService
      for (const headers of [[], [["Authorization", "Bearer unknown"] as const]]) {
        const answer = yield* send(url, { path, headers })
        assert.strictEqual(answer.status, 200)
        assert.strictEqual(answer.body, body)
        assertHeaders(answer)
      }
    })
  )

  it.effect(
    "a keyring without a key that rows name is not ready, and says which key and how many rows (SECURITY.md, Keyring)",
    () =>
      Effect.gen(function* () {
        const { databaseUrl, sql, url } = yield* TestService
        const { create, management_key } = yield* TestService.tenant
        const made = yield* create(minimal)
        created(yield* create(minimal))
        const rows = yield* sql<{
          kek_id: string
          n: number
        }>`SELECT kek_id, count(*)::int AS n FROM credentials GROUP BY 1`
        assert.lengthOf(rows, 1)
        const [{ kek_id, n } = { kek_id: "", n: 0 }] = rows

        const settings = settingsFor(databaseUrl)
        const other = Layer.effectDiscard(
          Effect.gen(function* () {
            const { address } = yield* HttpServer.HttpServer
            const otherUrl = HttpServer.formatAddress(address)
            const answer = yield* send(otherUrl, ready)
            assertRefused(answer, "ServiceUnavailable", {
              problems: [`key ${kek_id} is missing from the keyring; credentials sealed with it: ${n}`]
            })
            assert.strictEqual((yield* send(otherUrl, { path: "/health/live" })).status, 200)
            const found = yield* get(otherUrl, management_key, createdId(made))
            assert.strictEqual(found.body, made.body)
          })
        ).pipe(Layer.provide(Layer.fresh(Server.layer(settings))), Layer.provide(Layer.fresh(Byok.layerWith(settings))))
        yield* Effect.scoped(Layer.build(other))
        assert.strictEqual((yield* send(url, ready)).status, 200)
      })
  )

  it.effect("a schema without the latest migrations is not ready", () =>
    Effect.gen(function* () {
      const { sql, url } = yield* TestService
      yield* Effect.acquireUseRelease(
        Effect.orDie(sql`UPDATE effect_sql_migrations SET migration_id = -migration_id`),
        () =>
          Effect.map(send(url, ready), (answer) => {
            assertRefused(answer, "ServiceUnavailable", {
              problems: ["the database lacks migrations that this version needs"]
            })
          }),
        () => Effect.orDie(sql`UPDATE effect_sql_migrations SET migration_id = -migration_id`)
      )
      assert.strictEqual((yield* send(url, ready)).status, 200)
    })
  )
})
