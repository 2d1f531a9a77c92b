import { assert, describe, it } from "@effect/vitest"
import { Context, Effect, Layer } from "effect"
import { KekRegistry } from "../../src/port/KekRegistry.ts"
import * as DatabaseLive from "../../src/sql/connection/Database.ts"
import * as KekRegistryLive from "../../src/sql/KekRegistryLive.ts"
import { migrate } from "../../src/sql/Migrations.ts"
import { eventsIn } from "../support/database/auditEntries.ts"
import { databaseProxy } from "../support/database/DatabaseProxy.ts"
import { adminClient, databaseSettings, freshDatabase } from "../support/database/freshDatabase.ts"

describe("a promotion", () => {
  it.live("whose answer is lost is recorded once, and one after that again", () =>
    Effect.gen(function* () {
      const url = yield* freshDatabase
      const sql = yield* adminClient(url)
      const proxy = yield* databaseProxy(url)
      yield* migrate(proxy.target, databaseSettings)
      const registry = KekRegistryLive.layer.pipe(Layer.provide(DatabaseLive.layer(proxy.target, databaseSettings)))
      const { promote } = Context.get(yield* Layer.build(registry), KekRegistry)
      const promoted = Effect.map(eventsIn(sql), (events) =>
        events.flatMap((event) => (event.action === "keyring.promote" ? [event.kek_id] : []))
      )
      proxy.loseAnswer("INSERT 0 1")
      yield* promote("next")
      assert.strictEqual(proxy.lost(), 1)
      assert.deepStrictEqual(yield* promoted, ["next"])
      yield* promote("next")
      assert.deepStrictEqual(yield* promoted, ["next", "next"])
    })
  )
})
