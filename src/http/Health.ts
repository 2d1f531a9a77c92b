import { Effect } from "effect"
import { HttpRouter, HttpServerResponse } from "effect/http"
import { ServiceUnavailable } from "../domain/Errors.ts"
import { Draining } from "../port/Draining.ts"
import { Readiness } from "../port/Readiness.ts"
import { cachedFor } from "./cachedFor.ts"

const live = HttpServerResponse.jsonUnsafe({ status: "live" })
const ready = HttpServerResponse.jsonUnsafe({ status: "ready" })
const notReady = HttpServerResponse.jsonUnsafe({ error: new ServiceUnavailable().error }, { status: 503 })

/** How long an answer about readiness is kept, in milliseconds: anybody may ask, as often as they like. */
const kept = 1000

/** Logs each change of what is wrong, once. The public answer shows none of it. */
const makeReport = () => {
  let logged = ""
  return (problems: ReadonlyArray<string>, warnings: ReadonlyArray<string>) =>
    Effect.suspend(() => {
      const found = [...problems, ...warnings].join("; ")
      if (found === logged) return Effect.void
      logged = found
      if (found === "") return Effect.logInfo("Ready")
      return Effect.logWarning(`${problems.length > 0 ? "Not ready" : "Ready, but"}: ${found}`)
    })
}

/** `/health/live` answers while the process runs; `/health/ready` says whether the service can work. */
export const layer = HttpRouter.use(
  Effect.fnUntraced(function* (router) {
    const readiness = yield* Readiness
    const isDraining = yield* Draining
    const report = makeReport()
    const answer = yield* cachedFor(kept)(
      Effect.gen(function* () {
        const { problems, warnings } = yield* Effect.all(readiness, { concurrency: 2 })
        yield* report(problems, warnings)
        return problems.length === 0 ? ready : notReady
      })
    )
    yield* router.add("GET", "/health/live", Effect.succeed(live))
    yield* router.add(
      "GET",
      "/health/ready",
      Effect.suspend(() => (isDraining() ? Effect.succeed(notReady) : answer))
    )
  })
)
