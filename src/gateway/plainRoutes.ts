import type { IncomingMessage, ServerResponse } from "node:http"
import { Effect, type Exit, Schema } from "effect"
import type { InvalidParams, NotFound, ServiceUnavailable, Unauthorized } from "../domain/Errors.ts"
import type { PlainAnswer } from "../http/Envelope.ts"
import { hasPlainBody, jsonOf, makePlainAnswering, namesHost, onBody, orElse } from "../http/plainRequests.ts"
import { makeArriving } from "../http/RequestDecodingLive.ts"
import { requestIdOf } from "../http/RequestHeaders.ts"
import * as AtHand from "../port/AtHand.ts"
import { MemoryBudget } from "../port/MemoryBudget.ts"
import { type AnotherAttemptOpen, NewRoute, Report } from "./GatewayApi.ts"
import { isPlainReport, plainNewRoute } from "./plainBodies.ts"
import { type RouteResponse, Routes } from "./Routes.ts"

type Refusal = InvalidParams | Unauthorized | NotFound | ServiceUnavailable | AnotherAttemptOpen

const parseOptions = { errors: "all", onExcessProperty: "error" } as const
const decodeAsNewRoute = Schema.decodeUnknownExit(NewRoute, parseOptions)
const decodeAsReport = Schema.decodeUnknownExit(Report, parseOptions)

const decodeNewRoute = orElse(plainNewRoute, decodeAsNewRoute)
const decodeReport = orElse((given) => (isPlainReport(given) ? given : undefined), decodeAsReport)

const answerOf = ({ data, status }: RouteResponse): PlainAnswer => ({ status, text: JSON.stringify({ data }) })

const ofBody = <A>(
  bytes: Buffer,
  decode: (input: unknown) => Exit.Exit<A, Schema.SchemaError>,
  answer: (given: A) => Effect.Effect<RouteResponse, Refusal>
): Effect.Effect<PlainAnswer, Refusal> => AtHand.map(AtHand.flatMap(jsonOf(bytes, decode), answer), answerOf)

const attemptPath = /^\/v1\/routes\/([\da-f-]+)\/attempts\/(\d+)$/

/**
 * Makes a function that takes the two requests of every routed request, open and report, without the layers of the other
 * routes: the contract's schemas, and the operations behind its handlers. What is not plain about a request is left to those.
 */
export const makePlainRoutes = Effect.gen(function* () {
  const { open, report } = yield* Routes
  const budget = yield* MemoryBudget
  const answering = yield* makePlainAnswering

  const answererOf = ({ url = "" }: IncomingMessage, response: ServerResponse) => {
    if (url === "/v1/routes") return (body: Buffer) => ofBody(body, decodeNewRoute, (given) => open(given, response))
    const [, id, n] = attemptPath.exec(url) ?? []
    if (id === undefined) return undefined
    return (body: Buffer) => ofBody(body, decodeReport, (given) => report(id, Number(n), given))
  }

  return (request: IncomingMessage, response: ServerResponse): boolean => {
    if (answering === undefined) return false
    const isPlain = request.method === "POST" && namesHost(request) && hasPlainBody(request)
    const answer = isPlain ? answererOf(request, response) : undefined
    if (answer === undefined) return false
    const request_id = requestIdOf(request.headers["x-request-id"])
    response.sendDate = false
    const arriving = makeArriving(budget, "gateway", "gateway", request)
    response.once("close", () => arriving.holding.release())
    onBody(request, arriving, (body) => answering(response, request_id, true, answer(body)))
    return true
  }
})
