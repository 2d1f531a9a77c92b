import { Clock, Context, Effect, Exit, type Fiber, Option, References, Tracer } from "effect"
import { type HttpServerRequest, type HttpServerResponse, HttpTraceContext } from "effect/http"
import { AccessLog, clientGone, CurrentRequestLog, refusals, type RequestLogContext } from "./RequestLogContext.ts"
import { routeOf } from "./Routing.ts"

/** The methods that have a meaning in HTTP; others are not repeated. */
const methods = new Set(["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "CONNECT", "QUERY"])

/** Begins the span of a request, under the span of its caller if it names one; none if the trace is not recorded. */
const beginRequestSpan = (
  fiber: Fiber.Fiber<unknown, unknown>,
  { headers, method }: HttpServerRequest.HttpServerRequest,
  route: string | undefined
): Tracer.AnySpan | undefined => {
  const parent = HttpTraceContext.fromHeaders(headers)
  const known = methods.has(method) ? method : "HTTP"
  const span = fiber.getRef(Tracer.Tracer).span({
    name: route === undefined ? known : `${known} ${route}`,
    parent,
    kind: "server",
    annotations: Context.empty(),
    links: [],
    startTime: fiber.getRef(Clock.Clock).currentTimeNanosUnsafe(),
    root: false,
    sampled: true
  })
  if (!span.sampled) return Option.isSome(parent) ? span : undefined
  span.attribute("http.request.method", known === "HTTP" ? "_OTHER" : method)
  if (route !== undefined) span.attribute("http.route", route)
  return span
}

/** Ends it. A 5XX is an error; nothing of the failure's text is kept. */
const endRequestSpan = (
  fiber: Fiber.Fiber<unknown, unknown>,
  span: Tracer.Span,
  request_id: string,
  status: number
): void => {
  const ended = fiber.getRef(Clock.Clock).currentTimeNanosUnsafe()
  span.attribute("http.response.header.x-request-id", [request_id])
  if (status === clientGone) {
    span.attribute("error.type", "client_gone")
    return span.end(ended, Exit.interrupt())
  }
  span.attribute("http.response.status_code", status)
  if (status < 500) return span.end(ended, Exit.void)
  span.attribute("error.type", String(status))
  span.end(ended, Exit.fail(status))
}

/** Probes are sent all the time: they make no trace, and a line at `debug` only. */
const isProbe = (route: string | undefined) => route?.startsWith("/health/") === true

interface Observed {
  readonly request: HttpServerRequest.HttpServerRequest
  readonly request_id: string
  /** As the router takes it. */
  readonly url: string
}

/**
 * Makes a function that answers a request within a span and, if wanted, logs a line. Both name the template of its route and
 * the caller's key by its hash: nothing that the client wrote except its request id.
 */
export const traceAndLog = Effect.map(AccessLog, (logged) => {
  const logLine = (
    { request: { method }, request_id }: Observed,
    route: string | undefined,
    began: number,
    logContext: RequestLogContext,
    status: number
  ) => {
    const line = {
      method,
      ...(route === undefined ? {} : { route }),
      status,
      duration_ms: Math.round((performance.now() - began) * 1000) / 1000,
      request_id,
      ...logContext
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
      const logContext: RequestLogContext | undefined = logged ? {} : undefined
      const finished =
        logContext === undefined && span?.sampled !== true
          ? answered
          : Effect.onExit(answered, (exit) => {
              const own = Exit.isSuccess(exit) ? exit.value.status : clientGone
              const status = refusals.get(request.source) ?? own
              if (span?._tag === "Span") endRequestSpan(fiber, span, request_id, status)
              return logContext === undefined ? Effect.void : logLine(observed, route, began, logContext, status)
            })
      if (span === undefined && logContext === undefined) return finished
      return Effect.updateContext(finished, (context: Context.Context<R>) => {
        const within = span === undefined ? context : Context.add(context, Tracer.ParentSpan, span)
        return logContext === undefined ? within : Context.add(within, CurrentRequestLog, logContext)
      })
    })
})
