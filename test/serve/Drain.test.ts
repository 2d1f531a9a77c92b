import { assert } from "@effect/vitest"
import { Effect, Fiber, Option } from "effect"
import { minimal } from "../support/http/Bodies.ts"
import { createOver } from "../support/http/callByok.ts"
import { send } from "../support/http/HttpProbe.ts"
import { eventually } from "../support/process/eventually.ts"
import { StartedBefore } from "../support/process/firstStart.ts"
import { layerLive } from "../support/process/layerLive.ts"
import { startService } from "../support/process/ServiceProcess.ts"
import { workersOf } from "../support/process/workersOf.ts"

const statusOf = (url: string, path: string) => Effect.map(send(url, { path }), ({ status }) => status)

const untilNotReady = (url: string) =>
  eventually(
    "it is not ready",
    Effect.map(statusOf(url, "/health/ready"), (status) => status === 503)
  )

layerLive(StartedBefore.layer, { timeout: "60 seconds" })(
  "a service with a drain delay that is asked to stop",
  (it) => {
    it.effect.each(["1", "2"])(
      "is not ready and still serves, with %s process(es), until a second signal ends the delay (R2)",
      (BYOK_PROCESSES) =>
        Effect.gen(function* () {
          const { key, settings } = yield* StartedBefore
          // No test waits for it: only the second signal can end it.
          const service = yield* startService({ ...settings, BYOK_PROCESSES, DRAIN_DELAY: "1 hour", LOG_LEVEL: "info" })
          const { ended, pid, signal, stderr, url } = service
          if (BYOK_PROCESSES === "2") {
            yield* eventually(
              "both serve",
              Effect.sync(() => stderr().includes("Process 2 is serving"))
            )
          }
          assert.strictEqual(yield* statusOf(url, "/health/ready"), 200)
          const exit = yield* Effect.forkChild(ended)
          yield* signal("SIGTERM")
          yield* untilNotReady(url)
          // A process manager may signal every process of a service, and none may take that for the second.
          if (BYOK_PROCESSES === "2") for (const worker of workersOf(pid)) process.kill(worker, "SIGTERM")
          for (let request = 0; request < 20; request += 1) {
            assert.strictEqual(yield* statusOf(url, "/health/ready"), 503)
            assert.strictEqual(yield* statusOf(url, "/health/live"), 200)
            assert.strictEqual((yield* createOver(url, key, minimal)).status, 201)
          }
          assert.isUndefined(exit.pollUnsafe())
          yield* signal("SIGTERM")
          assert.deepStrictEqual(yield* Effect.timeoutOption(Fiber.join(exit), "20 seconds"), Option.some(0))
        })
    )

    it.effect("stops by itself after the delay (R2)", () =>
      Effect.gen(function* () {
        const { settings } = yield* StartedBefore
        const { ended, signal, url } = yield* startService({ ...settings, DRAIN_DELAY: "2 seconds" })
        const began = performance.now()
        yield* signal("SIGTERM")
        yield* untilNotReady(url)
        assert.deepStrictEqual(yield* Effect.timeoutOption(ended, "20 seconds"), Option.some(0))
        assert.isAtLeast(performance.now() - began, 2000)
      })
    )
  }
)
