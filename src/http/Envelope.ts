import { toIncomingMessage } from "@effect/platform-node/NodeHttpServerRequest"
import type { IncomingMessage } from "node:http"
import { Cause, Context, Effect } from "effect"
import { HttpRouter, HttpServerError, HttpServerRequest, HttpServerResponse } from "effect/http"
import { HttpApiError } from "effect/http-api"
import { MethodNotAllowed } from "../contract/HttpErrors.ts"
import { InternalError, InvalidParams, NotFound, ServiceUnavailable } from "../domain/Errors.ts"
import { DatabaseFailure } from "../port/DatabaseFailure.ts"
import { RequestTimeout, withDeadline } from "../runtime/Deadline.ts"
import { isRepeated, requestIdOf } from "./RequestHead.ts"
import { routableUrl, Routing } from "./Routing.ts"
import { traceAndLog } from "./traceAndLog.ts"

/** An error in its envelope, `{ error: { code, message } }`. The code is also the status. */
export const errorResponse = (
  { error }: { readonly error: { readonly code: number; readonly message: string; readonly metadata?: object } },
  headers: Record<string, string> = {}
) => HttpServerResponse.jsonUnsafe({ error }, { status: error.code, headers })

/** Answers 404 for an unknown path, and 405 if the path has a route for another method. */
const answerUnrouted = ({ methodsOf }: Routing["Service"], url: string) => {
  const allow = methodsOf(url)
  return allow.length === 0
    ? errorResponse(new NotFound())
    : errorResponse(new MethodNotAllowed(), { allow: allow.join(", ") })
}

const hostRefusal = Effect.succeed(
  errorResponse(InvalidParams.of({ path: [], message: "must have exactly one Host header" }), { connection: "close" })
)

/** Whether a request has exactly one Host header, as RFC 9112 requires in section 3.2; HTTP/1.0 needs none. */
const namesOneHost = (request: IncomingMessage) =>
  request.headers.host === undefined ? request.httpVersion !== "1.1" : !isRepeated(request, "host")

/**
 * Logs a self-explanatory database failure, such as an outage, in one sentence; any other failure with its cause (D11).
 */
const logFailure = (cause: Cause.Cause<unknown>) => {
  const failure = Cause.squash(cause)
  return failure instanceof DatabaseFailure && failure.isSelfExplanatory
    ? Effect.logError(`Unexpected failure: ${failure._tag} ${failure.message}`)
    : Effect.logError("Unexpected failure", cause)
}

/**
 * Logs a failure and answers 500; or 503 if the database cannot answer now, and the request may be repeated or did
 * nothing.
 */
const answerFailure = (cause: Cause.Cause<unknown>, request_id: string, mayRepeat: boolean) => {
  const failure = Cause.squash(cause)
  const isOfDatabase = failure instanceof DatabaseFailure
  const isRetryable = isOfDatabase && failure.isUnavailable && (mayRepeat || failure.isUnsent === true)
  return logFailure(cause).pipe(
    Effect.annotateLogs({ request_id }),
    Effect.as(errorResponse(isRetryable ? new ServiceUnavailable() : new InternalError()))
  )
}

/**
 * Answers 404 for a path that does not decode (D5), 400 for any other part of a request (D7). Undefined for a response
 * that does not encode: its kinds are `Body` and `ResponseHeaders`; the body of a request has the kind `Payload`.
 */
const decodingRefusal = ({ cause, kind }: HttpApiError.HttpApiSchemaError) => {
  if (kind === "Body" || kind === "ResponseHeaders") return undefined
  return errorResponse(kind === "Params" ? new NotFound() : InvalidParams.ofSchema(cause.issue))
}

/** The answer to a request that has no route or does not decode; undefined for other failures. */
const refusalOf = (failure: unknown, routing: Routing["Service"], url: string) => {
  if (HttpApiError.HttpApiSchemaError.is(failure)) return decodingRefusal(failure)
  const isUnrouted = HttpServerError.isHttpServerError(failure) && failure.reason._tag === "RouteNotFound"
  return isUnrouted ? answerUnrouted(routing, url) : undefined
}

/**
 * Routes each request by its `routableUrl`, with a deadline, and traces and logs it. Answers failures that no route
 * declares with an error in its envelope, and gives every response its headers (D10, D11, D12). Each router needs an
 * instance of its own: use `Layer.fresh`.
 */
export const layer = HttpRouter.middleware(
  Effect.gen(function* () {
    const routing = yield* Routing
    const withRequestDeadline = withDeadline(yield* RequestTimeout)
    const observe = yield* traceAndLog(routing)
    return (app) =>
      Effect.contextWith((context: Context.Context<HttpServerRequest.HttpServerRequest>) => {
        const request = Context.get(context, HttpServerRequest.HttpServerRequest)
        const request_id = requestIdOf(request.headers["x-request-id"])
        // Read from Node, which has the target as it was sent: Effect rewrites a target in absolute form.
        const source = toIncomingMessage(request) as IncomingMessage
        const url = routableUrl(source.url ?? "")
        const routed = !namesOneHost(source)
          ? hostRefusal
          : url === request.url
            ? app
            : Effect.provideService(app, HttpServerRequest.HttpServerRequest, request.modify({ url }))
        const addHeaders = (response: HttpServerResponse.HttpServerResponse) =>
          HttpServerResponse.setHeaders(response, {
            "x-request-id": request_id,
            "cache-control": response.headers["cache-control"] ?? "no-store",
            ...(response.status === 503 ? { "retry-after": "1" } : {})
          })
        const enveloped = Effect.matchCauseEffect(withRequestDeadline(routed), {
          onSuccess: (response) => Effect.succeed(addHeaders(response)),
          onFailure: (cause) => {
            if (Cause.hasInterruptsOnly(cause)) return Effect.failCause(cause)
            const refusal = refusalOf(Cause.squash(cause), routing, url)
            if (refusal !== undefined) return Effect.succeed(addHeaders(refusal))
            const mayRepeat = routing.mayRepeat(request.method, url)
            return Effect.map(answerFailure(cause, request_id, mayRepeat), addHeaders)
          }
        })
        return observe({ request, request_id, url }, enveloped)
      })
  }),
  { global: true }
)
