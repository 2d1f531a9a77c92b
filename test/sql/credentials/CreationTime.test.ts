import { Clock, Context, Effect, Layer } from "effect"
import * as Byok from "../../../src/wiring/Byok.ts"
import { IdempotencyKey } from "../../../src/domain/Identifiers.ts"
import { Accounts } from "../../../src/service/accounts/Accounts.ts"
import { adminClient, migratedDatabase, settingsFor } from "../../support/database/freshDatabase.ts"
import { clockAhead } from "../../support/process/clockAhead.ts"
import { create, createOnce, get } from "../../support/service/asTenant.ts"
import { assert, it } from "../../support/it.ts"

it.live(
  "created_at is the database's time, even if the clock of the instance is a day ahead or behind (D33, L4)",
  function* () {
    const url = yield* migratedDatabase
    const sql = yield* adminClient(url)
    const now = Effect.map(sql<{ now: Date }>`SELECT now()`, ([row]) => row?.now.getTime() ?? assert.fail("no row"))
    const instance = yield* Layer.build(Byok.layerWith(settingsFor(url)))
    const tenant = yield* Context.get(instance, Accounts).createAccount("n")
    const once = (key: string) =>
      Effect.map(createOnce(tenant, {}, IdempotencyKey.make(key)), ({ credential }) => credential)

    for (const hours of [24, -24]) {
      const keys = [1, 2, 3, 4].map((n) => `${hours}_${n}`)
      const creating = [
        create(tenant),
        once(`${hours}`),
        ...[() => create(tenant), once].map((way) => Effect.forEach(keys, way, { concurrency: "unbounded" }))
      ]
      const before = yield* now
      const made = yield* Effect.all(creating).pipe(
        Effect.provideService(Clock.Clock, yield* clockAhead(`${hours} hours`)),
        Effect.provide(instance)
      )
      const after = yield* now
      for (const credential of made.flat()) {
        const millis = credential.created_at.epochMilliseconds
        assert.isTrue(before <= millis && millis <= after, `${before} <= ${millis} <= ${after}`)
        assert.deepEqual(yield* Effect.provide(get(tenant, credential.id), instance), credential)
      }
    }
  }
)
