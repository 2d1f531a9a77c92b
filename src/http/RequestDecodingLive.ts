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

const maxBytes = 256 * 1024
const refused = (message: string) => InvalidParams.of({ path: [], message })

/** How many bytes a request takes for each byte of its body: as it arrives, as text, parsed, decoded and sealed. */
const bytesPerByte = 8

/**
 * Holds the parts of a body as they arrive: while one is not admitted, nothing more is read. Once released, all are wiped, as
 * they may hold a key.
 */
const holdArriving = ({ hold }: MemoryBudget, sender: string, use: "body" | "gateway", source: IncomingMessage) => {
  const parts: Array<Buffer> = []
  const holding = hold(sender, use, () => {
    if (!source.complete) source.destroy()
  })
  const admit = (part: Buffer) => {
    parts.push(part)
    let isAdmitted = false
    const goOn = () => {
      isAdmitted = true
      source.resume()
    }
    if (!holding.grow(bytesPerByte * part.length, goOn) && !isAdmitted) source.pause()
  }
  // Begins when somebody listens: a listener alone would let the body pass by.
  const begin = (event: string) => {
    if (event !== "data") return
    source.off("newListener", begin)
    source.on("data", admit)
  }
  source.on("newListener", begin)
  return {
    release: () => {
      for (const part of parts) part.fill(0)
      holding.release()
    }
  }
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

/** Leaves out a byte order mark, as Effect does. */
const decoder = new TextDecoder()

/** Whether the whole body waits to be read, as most do once a key was looked up; that is less than a stream buffers. */
const hasArrived = ({ complete, headers, readableLength }: IncomingMessage) =>
  complete || readableLength === Number(headers["content-length"])

/** By the next tick, a body that came along with its head has been parsed. */
const nextTick = Effect.callback<undefined>((resume) => process.nextTick(() => resume(Effect.undefined)))

const readArrived = (source: IncomingMessage): Buffer => {
  const body = (source.read() as Buffer | null) ?? Buffer.alloc(0)
  source.resume()
  return body
}

const readArriving = (request: HttpServerRequest.HttpServerRequest) =>
  request.arrayBuffer.pipe(
    Effect.provideService(HttpIncomingMessage.MaxBodySize, ByteSize.bytes(maxBytes)),
    Effect.mapBoth({
      onSuccess: (body) => Buffer.from(body),
      onFailure: ({ reason }) =>
        "reason" in reason && reason.reason === "BodyTooLarge" ? new PayloadTooLarge() : refused("cannot be read")
    })
  )

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
      const text = isUtf8(bytes) ? decoder.decode(bytes) : undefined
      bytes.fill(0)
      if (text === undefined) return Effect.fail(refused("must be UTF-8"))
      Object.defineProperty(request, "text", { value: Effect.succeed(text) })
      return decoded
    }
    const read = Effect.suspend(() => {
      const isThere = hasArrived(source)
      return Effect.acquireUseRelease(
        isThere
          ? budget.admit(sender, use, bytesPerByte * source.readableLength)
          : Effect.sync(() => holdArriving(budget, sender, use, source)),
        () =>
          Effect.flatMap(
            isThere ? Effect.sync(() => readArrived(source)) : withoutDeadline(readArriving(request)),
            answer
          ),
        (holding) => Effect.sync(() => holding.release())
      )
    })
    return hasArrived(source) ? read : Effect.andThen(nextTick, read)
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
