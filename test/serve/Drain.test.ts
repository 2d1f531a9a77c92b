import { Effect, Fiber, Option } from "effect"
import { minimal } from "../support/http/Bodies.ts"
import { createOver } from "../support/http/callByok.ts"
import { send } from "../support/http/HttpProbe.ts"
import { eventually } from "../support/process/eventually.ts"
import { OnDatabase } from "../support/process/firstStart.ts"
import { assert, layerLive } from "../support/it.ts"
import { managementUrl, startService } from "../support/process/ServiceProcess.ts"

const statusOf = (url: string, path: string) => Effect.map(send(url, { path }), ({ status }) => status)

const untilNotReady = (url: string) =>
  eventually("it is not ready", statusOf(url, "/health/ready"), (status) => status === 503)

layerLive(OnDatabase.layer, { timeout: "60 seconds" })("a service with a drain delay that is asked to stop", (it) => {
  it.effect("after SIGTERM, a service reports not ready but serves until a second signal (R2)", function* () {
    const { key, settings } = yield* OnDatabase
    // So long that only the second signal can end the delay.
    const service = yield* startService({ ...settings, DRAIN_DELAY: "1 hour", BYOK_MANAGEMENT_PORT: "0" })
    const { ended, signal, url } = service
    assert.strictEqual(yield* statusOf(url, "/health/ready"), 200)
    const exit = yield* Effect.forkChild(ended)
    yield* signal("SIGTERM")
    yield* untilNotReady(url)
    for (let request = 0; request < 20; request += 1) {
      assert.strictEqual(yield* statusOf(url, "/health/ready"), 503)
      assert.strictEqual(yield* statusOf(url, "/health/live"), 200)
      assert.strictEqual((yield* createOver(url, key, minimal)).status, 201)
    }
    const { body, status } = yield* send(yield* managementUrl(service), { path: "/health/ready" })
    assert.strictEqual(status, 503)
    assert.include(body, '"metadata":{"problems":["the service is stopping"],"warnings":[]}')
    assert.isUndefined(exit.pollUnsafe())
    yield* signal("SIGTERM")
    assert.deepStrictEqual(yield* Effect.timeoutOption(Fiber.join(exit), "20 seconds"), Option.some(0))
  })

  it.effect("after SIGTERM, a service exits when DRAIN_DELAY has passed (R2)", function* () {
    const { settings } = yield* OnDatabase
    const { ended, signal, url } = yield* startService({ ...settings, DRAIN_DELAY: "2 seconds" })
    const began = performance.now()
    yield* signal("SIGTERM")
    yield* untilNotReady(url)
    assert.deepStrictEqual(yield* Effect.timeoutOption(ended, "20 seconds"), Option.some(0))
    assert.isAtLeast(performance.now() - began, 2000)
  })
})
