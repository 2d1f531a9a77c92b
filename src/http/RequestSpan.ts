import { Clock, Context, Exit, type Fiber, Option, References, Tracer } from "effect"
import { type HttpServerRequest, HttpTraceContext } from "effect/http"
import { clientGone } from "./RequestLogContext.ts"

/** The methods that have a meaning in HTTP; others are not repeated. */
const methods = new Set(["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "CONNECT", "QUERY"])

/** Begins the span of a request, under the span of its caller if it names one; none if the trace is not recorded. */
export const beginRequestSpan = (
  fiber: Fiber.Fiber<unknown, unknown>,
  { headers, method }: HttpServerRequest.HttpServerRequest,
  route: string | undefined
): Tracer.AnySpan | undefined => {
  const tracer = fiber.getRef(Tracer.Tracer)
  if (tracer === Tracer.nativeTracer || !fiber.getRef(References.TracerEnabled)) return undefined
  const parent = HttpTraceContext.fromHeaders(headers)
  const known = methods.has(method) ? method : "HTTP"
  const span = tracer.span({
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
export const endRequestSpan = (
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
