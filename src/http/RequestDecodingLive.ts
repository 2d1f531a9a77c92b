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

/** Holds nothing of a body yet. While a part that arrives is not admitted, nothing more is read. */
export const makeArriving = (
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
  /** Goes on when the part that has arrived is admitted. */
  const admitArrived = (goOn: () => void) => {
    if (holding.grow(bytesPerByte * source.readableLength, goOn)) goOn()
  }
  return { admit, admitArrived, holding }
}

/** Holds the parts of a body as they arrive. */
const holdArriving = (...given: Parameters<typeof makeArriving>) => {
  const [, , , source] = given
  const { admit, holding } = makeArriving(...given)
  // Begins when somebody listens: a listener alone would let the body pass by.
  const begin = (event: string) => {
    if (event !== "data") return
    source.off("newListener", begin)
    source.on("data", admit)
  }
  source.on("newListener", begin)
  return holding
}

/** Why a body is not read; none if it is. */
const refusalOf = ({
  "content-encoding": encoding = "identity",
  "content-length": length = "0",
  "content-type": type = ""
}: HttpServerRequest.HttpServerRequest["headers"]) => {
  if (Number(length) > maxBytes) return new PayloadTooLarge()
  if (!/^application\/json[ \t]*(;|$)/i.test(type)) return refused("must be sent as application/json")
  if (encoding.toLowerCase() !== "identity") return refused("must be sent without content encoding")
  return undefined
}

const nothing = Buffer.alloc(0)
/** Leaves out a byte order mark, as Effect does. */
export const bodyDecoder = new TextDecoder()

/** Reads what has arrived in full, as most bodies have once a key was looked up; that is less than a stream buffers. */
export const readArrived = (source: IncomingMessage): Buffer => (source.read() as Buffer | null) ?? nothing

const readArriving = (request: HttpServerRequest.HttpServerRequest) =>
  request.arrayBuffer.pipe(
    Effect.provideService(HttpIncomingMessage.MaxBodySize, ByteSize.bytes(maxBytes)),
    Effect.mapBoth({
      onSuccess: (body) => Buffer.from(body),
      onFailure: ({ reason }) =>
        "reason" in reason && reason.reason === "BodyTooLarge" ? new PayloadTooLarge() : refused("cannot be read")
    })
  )

/** Answers a body on the account of whoever sent it, `arriving` unless it is there; `answer` wipes it. */
export const withBody = <A, E, R, E2, R2>(
  budget: MemoryBudget,
  sender: string,
  use: "body" | "gateway",
  source: IncomingMessage,
  arriving: Effect.Effect<Buffer, E, R>,
  answer: (body: Buffer) => Effect.Effect<A, E2, R2>
) => {
  const [held, body] = source.complete
    ? [budget.admit(sender, use, bytesPerByte * source.readableLength), Effect.sync(() => readArrived(source))]
    : [Effect.sync(() => holdArriving(budget, sender, use, source)), withoutDeadline(arriving)]
  return Effect.acquireUseRelease(
    held,
    () => Effect.flatMap(body, answer),
    (holding) => Effect.sync(() => holding.release())
  )
}

/** Reads a body of JSON on the account of whoever sent it, and reports what does not decode. */
export const withJsonBody = <A, E, R>(
  budget: MemoryBudget,
  sender: string,
  use: "body" | "gateway",
  app: Effect.Effect<A, E, R>
) =>
  Effect.flatMap(HttpServerRequest.HttpServerRequest, (request) => {
    const refusal = refusalOf(request.headers)
    if (refusal !== undefined) return Effect.fail(refusal)
    const source = toIncomingMessage(request) as IncomingMessage
    const decoded = Effect.mapError(app, (error) =>
      HttpApiError.HttpApiSchemaError.is(error) && (error.kind === "Payload" || error.kind === "Headers")
        ? InvalidParams.ofSchema(error.cause.issue)
        : error
    )
    const answer = (bytes: Buffer) => {
      if (!isUtf8(bytes)) return Effect.fail(refused("must be UTF-8"))
      Object.defineProperty(request, "text", { value: Effect.succeed(bodyDecoder.decode(bytes)) })
      // What was read from it is text by now; it may hold a key.
      bytes.fill(0)
      return decoded
    }
    return withBody(budget, sender, use, source, readArriving(request), answer)
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
