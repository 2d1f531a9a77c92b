import { toIncomingMessage } from "@effect/platform-node/NodeHttpServerRequest"
import { isUtf8 } from "node:buffer"
import type { IncomingMessage } from "node:http"
import { ByteSize, Effect, Layer } from "effect"
import { HttpIncomingMessage, HttpServerRequest } from "effect/http"
import { HttpApiError, HttpApiMiddleware } from "effect/http-api"
import { PayloadTooLarge } from "../api/HttpErrors.ts"
import { JsonBody, QueryParameters, ResourcePath } from "../api/Middleware.ts"
import { CurrentCaller } from "../domain/CurrentCaller.ts"
import { InvalidParams, NotFound } from "../domain/Errors.ts"
import { withoutDeadline } from "../port/Deadline.ts"
import { MemoryBudget } from "../port/MemoryBudget.ts"

export const maxBytes = 256 * 1024
const refused = (message: string) => InvalidParams.of({ path: [], message })

/** How many bytes a request takes for each byte of its body: as it arrives, as text, parsed, decoded and sealed. */
const bytesPerByte = 8

/** Holds the parts of a body as they arrive. While one is not admitted, nothing more is read. */
export const holdArriving = (
  { hold }: MemoryBudget,
  sender: string,
  use: "body" | "gateway",
  source: IncomingMessage
) => {
  const holding = hold(sender, use, () => {
    if (!source.complete) source.destroy()
  })
  const admit = ({ length }: Buffer) => {
    let isAdmitted = false
    const goOn = () => {
      isAdmitted = true
      source.resume()
    }
    if (!holding.grow(bytesPerByte * length, goOn) && !isAdmitted) source.pause()
  }
  // Begins when somebody listens: a listener alone would let the body pass by.
  const begin = (event: string) => {
    if (event !== "data") return
    source.off("newListener", begin)
    source.on("data", admit)
  }
  source.on("newListener", begin)
  return holding
}

/** Reads a body of JSON on the account of whoever sent it, and reports what does not decode. */
export const withJsonBody = Effect.fnUntraced(function* <A, E, R>(
  budget: MemoryBudget,
  sender: string,
  use: "body" | "gateway",
  app: Effect.Effect<A, E, R>
) {
  const request = yield* HttpServerRequest.HttpServerRequest
  const {
    "content-encoding": encoding = "identity",
    "content-length": length = "0",
    "content-type": type = ""
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
  const source = toIncomingMessage(request) as IncomingMessage
  const held = Effect.suspend(() => {
    if (source.complete) return budget.admit(sender, use, bytesPerByte * source.readableLength)
    return Effect.succeed(holdArriving(budget, sender, use, source))
  })
  return yield* Effect.acquireUseRelease(
    held,
    () => answer,
    (holding) => Effect.sync(() => holding.release())
  )
})

const jsonBody = Layer.effect(
  JsonBody,
  Effect.map(MemoryBudget, (budget) =>
    JsonBody.of((app) =>
      Effect.flatMap(CurrentCaller, ({ account_id }) => withJsonBody(budget, account_id, "body", app))
    )
  )
)

const queryParameters = HttpApiMiddleware.layerSchemaErrorTransform(QueryParameters, (error) =>
  Effect.fail(error.kind === "Query" ? InvalidParams.ofSchema(error.cause.issue) : error)
)

const resourcePath = HttpApiMiddleware.layerSchemaErrorTransform(ResourcePath, (error) =>
  Effect.fail(error.kind === "Params" ? new NotFound() : error)
)

export const layer = Layer.mergeAll(jsonBody, queryParameters, resourcePath)
