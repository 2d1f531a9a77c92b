import { assert } from "@effect/vitest"
import { Duration, Effect } from "effect"
import { connect } from "node:net"
import { TestService } from "../support/http/TestService.ts"
import { layerLive } from "../support/process/layerLive.ts"

const timeout = Duration.seconds(3)

/** How long a connection stays open after each answer: the last one is followed by nothing. */
const idleTimes = (url: string, requests: number) =>
  Effect.callback<ReadonlyArray<number>>((resume) => {
    const { hostname, port } = new URL(url)
    const socket = connect(Number(port), hostname)
    const answered: Array<number> = []
    const ask = () => socket.write("GET /health/live HTTP/1.1\r\nHost: localhost\r\n\r\n")
    socket.on("data", () => {
      answered.push(performance.now())
      // Later than a half of the timeout, it starts again.
      if (answered.length < requests) setTimeout(ask, Duration.toMillis(timeout) * 0.6)
    })
    socket.once("close", () => {
      const ends = [...answered.slice(1), performance.now()]
      resume(Effect.succeed(answered.map((at, index) => (ends[index] ?? at) - at)))
    })
    ask()
  })

layerLive(TestService.layerWith({ settings: (settings) => ({ ...settings, keepAliveTimeout: timeout }) }))(
  "an idle connection",
  (it) => {
    it.effect("stays open for the timeout after each answer, and is closed then", () =>
      Effect.gen(function* () {
        const { url } = yield* TestService
        const idle = yield* idleTimes(url, 3)
        assert.lengthOf(idle, 3)
        assert.isAtLeast(idle[2] ?? 0, Duration.toMillis(timeout))
      })
    )
  }
)
