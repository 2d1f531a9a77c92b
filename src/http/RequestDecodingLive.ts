import { toIncomingMessage, toServerResponse } from "@effect/platform-node/NodeHttpServerRequest"
import { isUtf8 } from "node:buffer"
import type { ServerResponse } from "node:http"
import { Context, Effect, Layer } from "effect"
import { HttpServerRequest, type HttpServerResponse } from "effect/http"
import { PayloadTooLarge, RequestTimeout } from "../contract/HttpErrors.ts"
import { JsonBody } from "../contract/Middleware.ts"
import { InvalidParams, ServiceUnavailable } from "../domain/Errors.ts"
import { accountOf, CurrentPrincipal } from "../domain/Principal.ts"
import { withPausedDeadline } from "../runtime/Deadline.ts"
import { type Reservation, MemoryBudget } from "../runtime/MemoryBudget.ts"
import { onEnd } from "../runtime/onEnd.ts"
import type { ArrivingRequest } from "./ArrivingRequest.ts"
import { errorResponse } from "./Envelope.ts"

const maxBytes = 256 * 1024
const invalidBody = (message: string) => InvalidParams.of({ path: [], message })

/** Memory for each byte of a request's body: in the buffer, as text, parsed, decoded and sealed. */
const memoryPerByte = 8

/** The error that refuses a body before it is read; undefined if it may be read. */
const refusalOf = ({
  "content-encoding": encoding = "identity",
  "content-length": length = "0",
  "content-type": type = ""
}: HttpServerRequest.HttpServerRequest["headers"]) => {
  if (Number(length) > maxBytes) return new PayloadTooLarge()
  if (!/^application\/json[ \t]*(;|$)/i.test(type)) return invalidBody("must be sent as application/json")
  if (encoding.toLowerCase() !== "identity") return invalidBody("must be sent without content encoding")
  return undefined
}

/** Skips a byte order mark, like Effect's decoder. */
const decoder = new TextDecoder()

/** Time limit for reading a body that waits for memory, in milliseconds: the same as Node's limit for its arrival. */
const memoryTimeout = 8_000

const timedOut = errorResponse(new RequestTimeout(), { connection: "close" })

/**
 * Reads a body and reserves memory for its chunks as they arrive. Bytes without a reservation are unadmitted:
 * `ArrivingRequest` limits those of all bodies together by dropping the largest, whose reading then fails. Undefined if
 * a complete body waits too long for memory.
 */
const readBody = (source: ArrivingRequest, reservation: Reservation) =>
  Effect.callback<Buffer | undefined, PayloadTooLarge | ServiceUnavailable>((resume) => {
    let admittedBytes = 0
    let isWaiting = false
    let isLate = false
    let hasEnded = false
    let timer: NodeJS.Timeout | undefined = undefined
    const end = (result: Effect.Effect<Buffer | undefined, PayloadTooLarge | ServiceUnavailable>) => {
      hasEnded = true
      clearTimeout(timer)
      resume(result)
    }
    /** Reserves memory for all bytes received so far. If that has to wait, calls `onProgress` once it is reserved. */
    const reserveReceived = () => {
      const { received } = source
      const admit = () => {
        isWaiting = false
        admittedBytes = received
        // More may have arrived while this reservation waited.
        if (source.received === received) source.markAdmitted()
      }
      isWaiting = true
      const isReserved = reservation.grow(memoryPerByte * (received - admittedBytes), () => {
        admit()
        onProgress()
      })
      if (isReserved) admit()
    }
    const onProgress = () => {
      const { hasArrived, received } = source
      if (received > maxBytes) return end(Effect.fail(new PayloadTooLarge()))
      if (source.isDropped) return end(Effect.fail(new ServiceUnavailable()))
      if (received > admittedBytes && !isWaiting) reserveReceived()
      if (isWaiting && hasArrived && admittedBytes > 0) {
        // Complete bodies that kept some memory while waiting for more could deadlock. So this one releases its memory,
        // which also ends its wait, and waits for the whole.
        reservation.shrink(0)
        admittedBytes = 0
        source.markUnadmitted()
        // If that dropped this body, the nested `onProgress` has failed it.
        if (source.isDropped) return
        reserveReceived()
      }
      if (hasArrived && !isWaiting) end(Effect.succeed(source.takeBody()))
      else if (hasArrived && isLate) end(Effect.undefined)
    }
    source.readAll(onProgress)
    if (hasEnded) return undefined
    // Leaves an incomplete body to Node, which times it out within a second, unless it has arrived by then.
    timer = setTimeout(() => {
      isLate = true
      if (source.hasArrived) resume(Effect.undefined)
    }, memoryTimeout)
    return Effect.sync(() => clearTimeout(timer))
  })

/**
 * Reads the JSON body of the request, then runs `app` with the body as the request's `text`. The body's memory counts
 * for `sender`, an account or the gateway, and for `use` until `app` ends.
 */
export const withJsonBody = <E, R>(
  budget: MemoryBudget["Service"],
  sender: string,
  use: "body" | "gateway",
  app: Effect.Effect<HttpServerResponse.HttpServerResponse, E, R>
) =>
  Effect.contextWith((context: Context.Context<HttpServerRequest.HttpServerRequest>) => {
    const request = Context.get(context, HttpServerRequest.HttpServerRequest)
    const refusal = refusalOf(request.headers)
    if (refusal !== undefined) return Effect.fail(refusal)
    const source = toIncomingMessage(request) as ArrivingRequest
    const answer = (
      bytes: Buffer | undefined
    ): Effect.Effect<HttpServerResponse.HttpServerResponse, E | InvalidParams, R> => {
      if (bytes === undefined) return Effect.succeed(timedOut)
      const text = isUtf8(bytes) ? decoder.decode(bytes) : undefined
      bytes.fill(0)
      if (text === undefined) return Effect.fail(invalidBody("must be UTF-8"))
      Object.defineProperty(request, "text", { value: Effect.succeed(text) })
      return app
    }
    const cutOffIncomplete = () => {
      if (!source.hasArrived) source.destroy()
    }
    let reservation: Reservation | undefined
    const reading = Effect.suspend(() => {
      if (source.expectsContinue) (toServerResponse(request) as ServerResponse).writeContinue()
      reservation = budget.reserve(sender, use, cutOffIncomplete)
      return withPausedDeadline(readBody(source, reservation))
    })
    return onEnd(Effect.flatMap(reading, answer), () => {
      source.wipe()
      reservation?.release()
    })
  })

/** Reads the JSON bodies of authenticated requests. Their memory counts for the principal's account. */
export const layer = Layer.effect(
  JsonBody,
  Effect.map(MemoryBudget, (budget) =>
    JsonBody.of((app) =>
      Effect.flatMap(CurrentPrincipal, (principal) => withJsonBody(budget, accountOf(principal), "body", app))
    )
  )
)
