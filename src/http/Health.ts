import { Duration, Effect } from "effect"
import { HttpServerResponse } from "effect/http"
import { Api } from "../contract/TenantsApi.ts"
import { ServiceUnavailable } from "../domain/Errors.ts"
import { errorResponse } from "./Envelope.ts"
import { group } from "./Handlers.ts"
import { Draining, type HealthReport, Readiness } from "../port/Readiness.ts"

const live = HttpServerResponse.jsonUnsafe({ status: "live" })
const ready = HttpServerResponse.jsonUnsafe({ status: "ready" })
const notReady = errorResponse(new ServiceUnavailable())

/** Caches the result for a second of the monotonic clock, because anybody may ask as often as they like. */
const cachedForOneSecond = <A, E, R>(effect: Effect.Effect<A, E, R>) =>
  Effect.map(Effect.cachedInvalidateWithTTL(effect, Duration.infinity), ([cached, invalidate]) => {
    let expires = 0
    return Effect.suspend(() => {
      if (performance.now() < expires) return cached
      expires = performance.now() + 1000
      return Effect.andThen(invalidate, cached)
    })
  })

/**
 * Makes an effect that answers 200 if the service can work and is not stopping, else 503. It checks at most once a
 * second, and calls `onReport` with the report of each check.
 */
export const makeReady = Effect.fnUntraced(function* (onReport: (report: HealthReport) => Effect.Effect<void>) {
  const readiness = yield* Readiness
  const isDraining = yield* Draining
  const answer = yield* cachedForOneSecond(
    Effect.map(Effect.tap(Effect.all(readiness, { concurrency: 2 }), onReport), ({ problems }) =>
      problems.length === 0 ? ready : notReady
    )
  )
  return Effect.suspend(() => (isDraining() ? Effect.succeed(notReady) : answer))
})

/** Serves `/health/live` while the process runs, and `/health/ready`, which logs each change of its report. */
export const layer = group(
  Api,
  "health",
  Effect.fnUntraced(function* (handlers) {
    let logged = ""
    const answer = yield* makeReady(({ problems, warnings }) => {
      const summary = [...problems, ...warnings].join("; ")
      if (summary === logged) return Effect.void
      logged = summary
      if (summary === "") return Effect.logInfo("Ready")
      return Effect.logWarning(`${problems.length > 0 ? "Not ready" : "Ready, but"}: ${summary}`)
    })
    // Logs the state at startup, before anybody asks.
    yield* Effect.forkScoped(answer)
    return handlers.handleAll({ live: () => Effect.succeed(live), ready: () => answer })
  })
)
