import { isUtf8 } from "node:buffer"
import type { IncomingMessage, ServerResponse } from "node:http"
import { Cause, Context, Duration, Effect, Exit, type Fiber, Option, References, Schema, Tracer } from "effect"
import { InvalidParams, type NotFound, type ServiceUnavailable, type Unauthorized } from "../domain/Errors.ts"
import { answerDefect } from "../http/Envelope.ts"
import { bodyDecoder, makeArriving, maxBytes } from "../http/RequestDecodingLive.ts"
import { requestIdOf } from "../http/RequestHeaders.ts"
import { ofRequests } from "../http/Server.ts"
import { AccessLog } from "../http/traceAndLog.ts"
import * as AtHand from "../port/AtHand.ts"
import { CurrentDeadline, RequestTimeout } from "../port/Deadline.ts"
import { MemoryBudget } from "../port/MemoryBudget.ts"
import { type AnotherAttemptOpen, NewRoute, Report } from "./GatewayApi.ts"
import { isPlainReport, plainNewRoute } from "./plainBodies.ts"
import { type RouteResponse, Routes } from "./Routes.ts"

type Refusal = InvalidParams | Unauthorized | NotFound | ServiceUnavailable | AnotherAttemptOpen
type Answering = Effect.Effect<RouteResponse, Refusal>

const parseOptions = { errors: "all", onExcessProperty: "error" } as const
const decodeAsNewRoute = Schema.decodeUnknownExit(NewRoute, parseOptions)
const decodeAsReport = Schema.decodeUnknownExit(Report, parseOptions)

const decodeNewRoute = (input: unknown): ReturnType<typeof decodeAsNewRoute> => {
  const plain = plainNewRoute(input)
  return plain === undefined ? decodeAsNewRoute(input) : Exit.succeed(plain)
}
const decodeReport = (input: unknown): ReturnType<typeof decodeAsReport> =>
  isPlainReport(input) ? Exit.succeed(input) : decodeAsReport(input)

const refused = (message: string) => InvalidParams.of({ path: [], message })

const ofBody = <A>(
  bytes: Buffer,
  decode: (input: unknown) => Exit.Exit<A, Schema.SchemaError>,
  answer: (given: A) => Answering
): Answering => {
  if (!isUtf8(bytes)) return Effect.fail(refused("must be UTF-8"))
  let input: unknown
  try {
    input = JSON.parse(bodyDecoder.decode(bytes))
  } catch {
    return Effect.fail(refused("must be valid JSON"))
  }
  const decoded = AtHand.mapError(decode(input), ({ issue }) => InvalidParams.ofSchema(issue))
  return AtHand.flatMap(decoded, answer)
}

/** Whether a request needs none of what the other routes do before they read a body, nor can be refused there. */
const isPlain = ({ headers, method }: IncomingMessage): boolean =>
  method === "POST" &&
  headers["content-type"] === "application/json" &&
  Number(headers["content-length"] ?? 0) > 0 &&
  Number(headers["content-length"]) <= maxBytes &&
  headers["content-encoding"] === undefined &&
  headers.host !== undefined &&
  !headers.host.includes(",")

const attemptPath = /^\/v1\/routes\/([\da-f-]+)\/attempts\/(\d+)$/

const write = (response: ServerResponse, status: number, request_id: string, body: object) => {
  const text = JSON.stringify(body)
  response.sendDate = false
  const headers = ["Content-Type", "application/json", "Content-Length", String(Buffer.byteLength(text))]
  headers.push("Cache-Control", "no-store", "X-Request-Id", request_id)
  if (status === 503) headers.push("Retry-After", "1")
  response.writeHead(status, headers).end(text)
}

/**
 * Makes a function that takes the two requests of every routed request, open and report, without the layers of the other
 * routes: the contract's schemas, and the operations behind its handlers. What is not plain about a request, traces and the
 * access log are left to those. Invariant: both ways answer the same.
 */
export const makePlainRoutes = Effect.gen(function* () {
  const { open, report } = yield* Routes
  const budget = yield* MemoryBudget
  const timeout = Duration.toMillis(yield* RequestTimeout)
  const isTraced = (yield* References.TracerEnabled) && (yield* Tracer.Tracer) !== Tracer.nativeTracer
  const isObserved = isTraced || (yield* AccessLog)
  const services = ofRequests(yield* Effect.context())

  const answererOf = ({ url = "" }: IncomingMessage, response: ServerResponse) => {
    if (url === "/v1/routes") return (body: Buffer) => ofBody(body, decodeNewRoute, (given) => open(given, response))
    const [, id, n] = attemptPath.exec(url) ?? []
    if (id === undefined) return undefined
    return (body: Buffer) => ofBody(body, decodeReport, (given) => report(id, Number(n), given))
  }

  return (request: IncomingMessage, response: ServerResponse): boolean => {
    const answer = isObserved || !isPlain(request) ? undefined : answererOf(request, response)
    if (answer === undefined) return false
    const request_id = requestIdOf(request.headers["x-request-id"])
    const { admit, holding } = makeArriving(budget, "gateway", "gateway", request)
    let fiber: Fiber.Fiber<RouteResponse, Refusal> | undefined
    const settle = (exit: Exit.Exit<RouteResponse, Refusal>): void => {
      if (Exit.isSuccess(exit)) return write(response, exit.value.status, request_id, { data: exit.value.data })
      const { cause } = exit
      const refusal = Option.getOrUndefined(Cause.findErrorOption(cause))
      if (refusal !== undefined) return write(response, refusal.error.code, request_id, { error: refusal.error })
      if (Cause.hasInterruptsOnly(cause)) return
      Effect.runForkWith(services)(answerDefect(cause, request_id, true)).addObserver((logged) => {
        if (Exit.isSuccess(logged)) write(response, logged.value.error.code, request_id, { error: logged.value.error })
      })
    }
    const parts: Array<Buffer> = []
    request
      .on("data", (part: Buffer) => {
        admit(part)
        parts.push(part)
      })
      .once("end", () => {
        const body = Buffer.concat(parts)
        const answering = answer(body)
        // What was read from it is text by now; it may have held an API key.
        for (const bytes of [body, ...parts]) bytes.fill(0)
        const exit = AtHand.exitOf(answering)
        if (exit !== undefined) return settle(exit)
        const context = Context.add(services, CurrentDeadline, { until: performance.now() + timeout })
        fiber = Effect.runForkWith(context)(answering)
        fiber.addObserver(settle)
      })
    response.once("close", () => {
      holding.release()
      fiber?.interruptUnsafe()
    })
    return true
  }
})
