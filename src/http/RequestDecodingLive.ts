import { isUtf8 } from "node:buffer"
import { ByteSize, Effect, Layer } from "effect"
import { HttpIncomingMessage, HttpServerRequest } from "effect/http"
import { HttpApiError, HttpApiMiddleware } from "effect/http-api"
import { PayloadTooLarge } from "../api/HttpErrors.ts"
import { JsonBody, QueryParameters, ResourcePath } from "../api/Middleware.ts"
import { CurrentCaller } from "../domain/CurrentCaller.ts"
import { InvalidParams, NotFound } from "../domain/Errors.ts"
import { withoutDeadline } from "../port/Deadline.ts"
import { makeBodyBudget } from "./makeBodyBudget.ts"

const maxBytes = 256 * 1024
const refused = (message: string) => InvalidParams.of({ path: [], message })

/** One account cannot take the memory of the process, however many connections it has. */
const withinBudget = makeBodyBudget({ account: 64 * maxBytes, total: 256 * maxBytes })

/** Reads a body of JSON on the account of whoever sent it, and reports what does not decode. */
export const withJsonBody = Effect.fnUntraced(function* <A, E, R>(sender: string, app: Effect.Effect<A, E, R>) {
  const request = yield* HttpServerRequest.HttpServerRequest
  const {
    "content-encoding": encoding = "identity",
    "content-length": length = "0",
    "content-type": type = "",
    "transfer-encoding": transfer
  } = request.headers
  if (Number(length) > maxBytes) return yield* new PayloadTooLarge()
  if (!/^application\/json[ \t]*(;|$)/i.test(type)) return yield* refused("must be sent as application/json")
  if (encoding.toLowerCase() !== "identity") return yield* refused("must be sent without content encoding")
  const answer = Effect.gen(function* () {
    const body = yield* withoutDeadline(request.arrayBuffer).pipe(
      Effect.provideService(HttpIncomingMessage.MaxBodySize, ByteSize.bytes(maxBytes)),
      Effect.mapError(({ reason }) =>
        "reason" in reason && reason.reason === "BodyTooLarge" ? new PayloadTooLarge() : refused("cannot be read")
      )
    )
    const bytes = new Uint8Array(body)
    if (!isUtf8(bytes)) return yield* refused("must be UTF-8")
    return yield* app.pipe(
      Effect.mapError((error) =>
        HttpApiError.HttpApiSchemaError.is(error) && (error.kind === "Payload" || error.kind === "Headers")
          ? InvalidParams.ofSchema(error.cause.issue)
          : error
      ),
      Effect.ensuring(Effect.sync(() => bytes.fill(0)))
    )
  })
  return yield* withinBudget(sender, transfer === undefined ? Number(length) : maxBytes, answer)
})

const jsonBody = Layer.succeed(JsonBody, (app) =>
  Effect.flatMap(CurrentCaller, ({ account_id }) => withJsonBody(account_id, app))
)

const queryParameters = HttpApiMiddleware.layerSchemaErrorTransform(QueryParameters, (error) =>
  Effect.fail(error.kind === "Query" ? InvalidParams.ofSchema(error.cause.issue) : error)
)

const resourcePath = HttpApiMiddleware.layerSchemaErrorTransform(ResourcePath, (error) =>
  Effect.fail(error.kind === "Params" ? new NotFound() : error)
)

/** The middleware that reads body, query and path. */
export const layer = Layer.mergeAll(jsonBody, queryParameters, resourcePath)
