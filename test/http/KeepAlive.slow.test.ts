import { Duration, Effect } from "effect"
import { render } from "../support/http/HttpProbe.ts"
import { open } from "../support/http/RawConnection.ts"
import { TestService } from "../support/http/TestService.ts"
import { assert, layerLive } from "../support/it.ts"

const timeout = Duration.seconds(3)

layerLive(TestService.layerWith({ settings: (settings) => ({ ...settings, keepAliveTimeout: timeout }) }))(
  "the keep-alive timeout",
  (it) => {
    it.effect("an idle connection stays open for the timeout after an answer, then closes silently (T9)", function* () {
      const connection = yield* open((yield* TestService).url)
      let answered = 0
      for (let requests = 0; requests < 3; requests++) {
        // Each answer starts the timeout anew: two pauses of 60 % exceed one timeout.
        if (requests > 0) yield* Effect.sleep(Duration.times(timeout, 0.6))
        yield* connection.write(render({ path: "/health/live" }))
        assert.strictEqual((yield* connection.answer).status, 200)
        answered = performance.now()
      }
      assert.strictEqual(yield* Effect.timeout(connection.closed, "30 seconds"), "")
      const idle = performance.now() - answered
      assert.isAtLeast(idle, Duration.toMillis(timeout) - 50)
      // Node adds a second, to answer a client that sends just before the timeout.
      assert.isBelow(idle, Duration.toMillis(timeout) + 5_000)
    })
  }
)
