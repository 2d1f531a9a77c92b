import { Effect } from "effect"
import { HttpRouter, HttpServerResponse } from "effect/http"
import { ServiceUnavailable } from "../domain/Errors.ts"
import { Readiness } from "../port/Readiness.ts"

const live = HttpServerResponse.jsonUnsafe({ status: "live" })
const ready = HttpServerResponse.jsonUnsafe({ status: "ready" })

/** `/health/live` answers while the process runs; `/health/ready` lists what keeps the service from working. */
export const layer = HttpRouter.use(
  Effect.fnUntraced(function* (router) {
    const { problems } = yield* Readiness
    yield* router.add("GET", "/health/live", Effect.succeed(live))
    yield* router.add(
      "GET",
      "/health/ready",
      Effect.map(problems, (found) => {
        if (found.length === 0) return ready
        const { error } = new ServiceUnavailable()
        return HttpServerResponse.jsonUnsafe({ error: { ...error, metadata: { problems: found } } }, { status: 503 })
      })
    )
  })
)
