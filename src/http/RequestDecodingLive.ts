import { toIncomingMessage, toServerResponse } from "@effect/platform-node/NodeHttpServerRequest"
import { isUtf8 } from "node:buffer"
import type { IncomingMessage, ServerResponse } from "node:http"
import { Context, Effect, Layer } from "effect"
import { HttpServerRequest, type HttpServerResponse } from "effect/http"
import { PayloadTooLarge } from "../contract/HttpErrors.ts"
import { JsonBody } from "../contract/Middleware.ts"
import { InvalidParams, ServiceUnavailable } from "../domain/Errors.ts"
import { hasMoreValuesThan } from "../domain/hasMoreValuesThan.ts"
import { accountOf, CurrentPrincipal } from "../domain/Principal.ts"
import { withPausedDeadline } from "../runtime/Deadline.ts"
import { type Holding, MemoryBudget } from "../runtime/MemoryBudget.ts"
import { onEnd } from "../runtime/onEnd.ts"

const maxBytes = 256 * 1024
/** Maximum values in a body, of any depth. An order of 1,000 ids has the most that any operation takes, or 100 reports beside 115 targets. */
const maxValues = 2000
const invalidBody = (message: string) => InvalidParams.of({ path: [], message })

/** Memory for a request's body: for each byte in the buffer, as text, parsed, decoded and sealed, and for each chunk. */
const memoryPer = { byte: 8, chunk: 256 }

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

/** Whether the client waits for 100 Continue before it sends the body. */
const expectsContinue = ({ complete, headers, httpVersion, readableLength }: IncomingMessage) =>
  headers.expect !== undefined && httpVersion === "1.1" && !complete && readableLength === 0

/** Reads a body and takes memory for its chunks as they arrive. Overwrites the chunks. */
const readBody = (source: IncomingMessage, { tryTake }: Holding) =>
  Effect.callback<Buffer, PayloadTooLarge | ServiceUnavailable>((resume) => {
    const chunks: Array<Buffer> = []
    let length = 0
    const stop = () => {
      source.off("data", onData).off("end", onEnd)
      for (const chunk of chunks) chunk.fill(0)
    }
    const fail = (error: PayloadTooLarge | ServiceUnavailable) => {
      stop()
      resume(Effect.fail(error))
    }
    const onData = (chunk: Buffer) => {
      chunks.push(chunk)
      length += chunk.length
      if (length > maxBytes) fail(new PayloadTooLarge())
      else if (!tryTake(memoryPer.byte * chunk.length + memoryPer.chunk)) fail(new ServiceUnavailable())
    }
    const onEnd = () => {
      const body = Buffer.concat(chunks)
      stop()
      resume(Effect.succeed(body))
    }
    source.on("data", onData).once("end", onEnd)
    return Effect.sync(stop)
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
    const source = toIncomingMessage(request) as IncomingMessage
    const answer = (bytes: Buffer): Effect.Effect<HttpServerResponse.HttpServerResponse, E | InvalidParams, R> => {
      const text = isUtf8(bytes) ? decoder.decode(bytes) : undefined
      bytes.fill(0)
      if (text === undefined) return Effect.fail(invalidBody("must be UTF-8"))
      if (hasMoreValuesThan(maxValues, text)) return Effect.fail(invalidBody(`must have at most ${maxValues} values`))
      Object.defineProperty(request, "text", { value: Effect.succeed(text) })
      return app
    }
    const holding = budget.hold(sender, use)
    const reading = Effect.suspend(() => {
      if (expectsContinue(source)) (toServerResponse(request) as ServerResponse).writeContinue()
      return withPausedDeadline(readBody(source, holding))
    })
    return onEnd(Effect.flatMap(reading, answer), () => holding.giveBack())
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
