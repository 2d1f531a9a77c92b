import { Clock, Context, Effect, Exit, type Fiber, Option, References, Tracer } from "effect"
import { type HttpServerRequest, type HttpServerResponse, HttpTraceContext } from "effect/http"
import { CurrentRequestLog, type RequestLog } from "../runtime/RequestLog.ts"
import { refusedStatusOf } from "./TransportRefusal.ts"
import { clientGone, methodOf } from "./RequestMeter.ts"
import type { Routing } from "./Routing.ts"

/** Whether requests are logged. */
export class AccessLog extends Context.Service<AccessLog, boolean>()("byok/AccessLog") {}

/** Begins a request's span, as a child of the one in its headers. Undefined if it is unsampled and has no parent. */
const beginRequestSpan = (
  fiber: Fiber.Fiber<unknown, unknown>,
  { headers, method }: HttpServerRequest.HttpServerRequest,
  route: string | undefined
): Tracer.AnySpan | undefined => {
  const parent = HttpTraceContext.fromHeaders(headers)
  const knownMethod = methodOf(method)
  const verb = knownMethod === "_OTHER" ? "HTTP" : knownMethod
  const span = fiber.getRef(Tracer.Tracer).span({
    name: route === undefined ? verb : `${verb} ${route}`,
    parent,
    kind: "server",
    annotations: Context.empty(),
    links: [],
    startTime: fiber.getRef(Clock.Clock).currentTimeNanosUnsafe(),
    root: false,
    sampled: true
  })
  // An unsampled span is not recorded, but tells later calls the trace of the client.
  if (!span.sampled) return Option.isSome(parent) ? span : undefined
  span.attribute("http.request.method", knownMethod)
  if (route !== undefined) span.attribute("http.route", route)
  return span
}

/** Ends the span, with `error.type` for a 5XX status or a client that left, but without the error's text. */
const endRequestSpan = (
  fiber: Fiber.Fiber<unknown, unknown>,
  span: Tracer.Span,
  request_id: string,
  status: number
): void => {
  const endTime = fiber.getRef(Clock.Clock).currentTimeNanosUnsafe()
  span.attribute("http.response.header.x-request-id", [request_id])
  if (status === clientGone) {
    span.attribute("error.type", "client_gone")
    return span.end(endTime, Exit.interrupt())
  }
  span.attribute("http.response.status_code", status)
  if (status < 500) return span.end(endTime, Exit.void)
  span.attribute("error.type", String(status))
  span.end(endTime, Exit.fail(status))
}

interface RoutedRequest {
  readonly request: HttpServerRequest.HttpServerRequest
  readonly request_id: string
  /** The target as the router matches it. */
  readonly url: string
}

type Answer<E, R> = Effect.Effect<HttpServerResponse.HttpServerResponse, E, R>

/**
 * Makes a wrapper that answers a request within a span and, if `AccessLog` is on, logs a line. Both name the route's
 * template; the line also has the `RequestLog`. Except for the request id, neither contains text from the client. Probes
 * are not traced, and are logged at `debug`.
 */
export const traceAndLog = ({ routeOf }: Routing["Service"]) =>
  Effect.map(
    AccessLog,
    (isLogged) =>
      <E, R>({ request, request_id, url }: RoutedRequest, answer: Answer<E, R>): Answer<E, R> =>
        Effect.withFiber((fiber): Answer<E, R> => {
          const isTraceable =
            fiber.getRef(References.TracerEnabled) && fiber.getRef(Tracer.Tracer) !== Tracer.nativeTracer
          if (!isTraceable && !isLogged) return answer
          const startedAt = performance.now()
          const { method } = request
          const route = routeOf(method, url)
          const isProbe = route?.startsWith("/health/") === true
          const span = isTraceable && !isProbe ? beginRequestSpan(fiber, request, route) : undefined
          const logContext: RequestLog | undefined = isLogged ? {} : undefined
          if (span === undefined && logContext === undefined) return answer
          const end = (exit: Exit.Exit<HttpServerResponse.HttpServerResponse, E>) => {
            const answeredStatus = Exit.isSuccess(exit) ? exit.value.status : clientGone
            const status = refusedStatusOf(request.source) ?? answeredStatus
            if (span?._tag === "Span") endRequestSpan(fiber, span, request_id, status)
            if (logContext === undefined) return Effect.void
            const duration_ms = Math.round((performance.now() - startedAt) * 1000) / 1000
            const target = route === undefined ? { method } : { method, route }
            return (isProbe ? Effect.logDebug("Request") : Effect.logInfo("Request")).pipe(
              Effect.annotateLogs({ ...target, status, duration_ms, request_id, ...logContext })
            )
          }
          const observed = logContext === undefined && span?.sampled !== true ? answer : Effect.onExit(answer, end)
          return Effect.updateContext(observed, (context: Context.Context<R>) => {
            const traced = span === undefined ? context : Context.add(context, Tracer.ParentSpan, span)
            return logContext === undefined ? traced : Context.add(traced, CurrentRequestLog, logContext)
          })
        })
  )
