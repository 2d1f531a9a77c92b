import { Context, Effect, Exit, References, Tracer } from "effect"
import type { HttpServerRequest, HttpServerResponse } from "effect/http"
import { AccessLog, clientGone, CurrentRequestLog, refusals, type RequestLogContext } from "./RequestLogContext.ts"
import { beginRequestSpan, endRequestSpan } from "./RequestSpan.ts"
import { routeOf } from "./Routing.ts"

/** What probes ask for all the time: no trace, and no line unless everything is logged. */
const isProbe = (route: string | undefined) => route?.startsWith("/health/") === true

interface Observed {
  readonly request: HttpServerRequest.HttpServerRequest
  readonly request_id: string
  /** As the router takes it. */
  readonly url: string
}

/**
 * Makes what follows a request with a span and, if wanted, a line in the log. Both name the template of its route and
 * the caller's key by its hash: nothing that the client wrote except its request id.
 */
export const observing = Effect.map(AccessLog, (logged) => {
  const logLine = (
    { request: { method }, request_id }: Observed,
    route: string | undefined,
    began: number,
    exchange: RequestLogContext,
    status: number
  ) => {
    const line = {
      method,
      ...(route === undefined ? {} : { route }),
      status,
      duration_ms: Math.round((performance.now() - began) * 1000) / 1000,
      request_id,
      ...exchange
    }
    const log = isProbe(route) ? Effect.logDebug("Request") : Effect.logInfo("Request")
    return Effect.annotateLogs(log, line)
  }

  return <E, R>(
    observed: Observed,
    answered: Effect.Effect<HttpServerResponse.HttpServerResponse, E, R>
  ): Effect.Effect<HttpServerResponse.HttpServerResponse, E, R> =>
    Effect.withFiber((fiber): Effect.Effect<HttpServerResponse.HttpServerResponse, E, R> => {
      const traceable = fiber.getRef(References.TracerEnabled) && fiber.getRef(Tracer.Tracer) !== Tracer.nativeTracer
      if (!traceable && !logged) return answered
      const began = performance.now()
      const { request, request_id, url } = observed
      const route = routeOf(request.method, url)
      const span = traceable && !isProbe(route) ? beginRequestSpan(fiber, request, route) : undefined
      const exchange: RequestLogContext | undefined = logged ? {} : undefined
      const finished =
        exchange === undefined && span?.sampled !== true
          ? answered
          : Effect.onExit(answered, (exit) => {
              const own = Exit.isSuccess(exit) ? exit.value.status : clientGone
              const status = refusals.get(request.source) ?? own
              if (span?._tag === "Span") endRequestSpan(fiber, span, request_id, status)
              return exchange === undefined ? Effect.void : logLine(observed, route, began, exchange, status)
            })
      if (span === undefined && exchange === undefined) return finished
      return Effect.updateContext(finished, (context: Context.Context<R>) => {
        const within = span === undefined ? context : Context.add(context, Tracer.ParentSpan, span)
        return exchange === undefined ? within : Context.add(within, CurrentRequestLog, exchange)
      })
    })
})
