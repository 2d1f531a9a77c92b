import { assert, layer } from "@effect/vitest"
import { Effect, Layer } from "effect"
import { created, minimal } from "../support/Bodies.ts"
import { create, get } from "../support/HttpProbe.ts"
import * as RecordingLive from "../support/Recording.ts"
import { Recording } from "../support/Recording.ts"
import { assertRefused } from "../support/Refusal.ts"
import * as TestServiceLive from "../support/TestService.ts"
import { TestService } from "../support/TestService.ts"
import { type FaultyKeyStore, partsWith } from "./FaultyKeyStore.ts"

const store: FaultyKeyStore = { state: "well" }

const service = Layer.provideMerge(TestServiceLive.layerWith({ parts: partsWith(store) }), RecordingLive.layer)

layer(service, { excludeTestServices: true })("a key store", (it) => {
  it.effect.each<readonly [FaultyKeyStore["state"], string]>([
    ["down", "it is down"],
    ["slow", "it does not answer"],
    ["wrong", "23514"]
  ])(
    "that is %s: create is 500 and stores nothing, get answers, and all is well once it is well (R10)",
    ([state, why]) =>
      Effect.gen(function* () {
        const { rowCount, tenant, url } = yield* TestService
        const { management_key } = yield* tenant
        const first = yield* create(url, management_key, minimal)
        const read = get(url, management_key, String(created(first)["id"]))
        const before = yield* rowCount

        store.state = state
        const together = [create(url, management_key, minimal), create(url, management_key, minimal), read] as const
        const [one, other, found] = yield* Effect.all(together, { concurrency: "unbounded" })
        const again = yield* read
        store.state = "well"

        for (const answer of [one, other]) {
          assertRefused(answer, "InternalError")
          const { logs } = yield* Recording
          const entry = logs.find(({ request_id }) => request_id === answer.headers["x-request-id"])
          assert.include(entry?.text, why)
          assert.notInclude(entry?.text, minimal.key)
        }
        for (const answer of [found, again]) assert.deepStrictEqual([answer.status, answer.body], [200, first.body])
        assert.strictEqual(yield* rowCount, before)
        created(yield* create(url, management_key, minimal))
      })
  )
})
