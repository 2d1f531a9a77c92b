import { isUtf8 } from "node:buffer"
import type { IncomingMessage, ServerResponse } from "node:http"
import { Cause, Context, Duration, Effect, Exit, Logger, Option, References, type Schema, Scope, Tracer } from "effect"
import { InvalidParams } from "../domain/Errors.ts"
import * as AtHand from "../port/AtHand.ts"
import { CurrentDeadline, RequestTimeout } from "../port/Deadline.ts"
import { answerDefect, type PlainAnswer } from "./Envelope.ts"
import { bodyDecoder, type makeArriving, maxBytes, readArrived } from "./RequestDecodingLive.ts"
import { AccessLog } from "./traceAndLog.ts"

interface Refusal {
  readonly error: { readonly code: number; readonly message: string; readonly metadata?: object }
}

/** What a request may use besides what its route was built with: every request copies this context. */
export const ofRequests = Context.pick(
  Scope.Scope,
  Tracer.Tracer,
  Logger.CurrentLoggers,
  Logger.LogToStderr,
  References.MinimumLogLevel,
  References.TracerEnabled
)

/** Whether the contract's way would route a request as its path says: a request without one Host is refused before. */
export const namesHost = ({ headers: { host } }: IncomingMessage): boolean => host !== undefined && !host.includes(",")

/** Whether a body needs none of what the contract's way does before it reads one, nor can be refused there. */
export const hasPlainBody = ({ headers }: IncomingMessage): boolean =>
  headers["content-type"] === "application/json" &&
  Number(headers["content-length"] ?? 0) > 0 &&
  Number(headers["content-length"]) <= maxBytes &&
  headers["content-encoding"] === undefined

/** Passes a body on once all of its parts have arrived. */
export const onArrival = (
  source: IncomingMessage,
  admit: (part: Buffer) => void,
  take: (body: Buffer) => void
): void => {
  const parts: Array<Buffer> = []
  source
    .on("data", (part: Buffer) => {
      admit(part)
      parts.push(part)
    })
    .once("end", () => {
      const body = Buffer.concat(parts)
      for (const part of parts) part.fill(0)
      take(body)
    })
}

/** Passes a body on once it is admitted. */
export const onBody = (
  source: IncomingMessage,
  { admit, admitArrived }: Pick<ReturnType<typeof makeArriving>, "admit" | "admitArrived">,
  take: (body: Buffer) => void
): void => {
  const hasWaited = source.complete
  // By then a body that came along with its head has been parsed, in one part.
  process.nextTick(() => {
    if (source.complete && !hasWaited) admitArrived(() => take(readArrived(source)))
    else onArrival(source, admit, take)
  })
}

const refused = (message: string) => Exit.fail(InvalidParams.of({ path: [], message }))

/** Decodes by hand what it can, and the rest by a schema. */
export const orElse =
  <A>(plain: (input: unknown) => A | undefined, decode: (input: unknown) => Exit.Exit<A, Schema.SchemaError>) =>
  (input: unknown): ReturnType<typeof decode> => {
    const decoded = plain(input)
    return decoded === undefined ? decode(input) : Exit.succeed(decoded)
  }

/** Decodes a body, and wipes it: what was read from it is text by then, and may hold a key. */
export const jsonOf = <A>(
  bytes: Buffer,
  decode: (input: unknown) => Exit.Exit<A, Schema.SchemaError>
): Effect.Effect<A, InvalidParams> => {
  const text = isUtf8(bytes) ? bodyDecoder.decode(bytes) : undefined
  bytes.fill(0)
  if (text === undefined) return refused("must be UTF-8")
  let input: unknown
  try {
    input = JSON.parse(text)
  } catch {
    return refused("must be valid JSON")
  }
  return AtHand.mapError(decode(input), ({ issue }) => InvalidParams.ofSchema(issue))
}

const write = (response: ServerResponse, request_id: string, { headers = {}, status, text }: PlainAnswer) => {
  const all = ["Content-Type", "application/json", "Content-Length", String(Buffer.byteLength(text))]
  all.push("Cache-Control", "no-store", "X-Request-Id", request_id)
  if (status === 503) all.push("Retry-After", "1")
  for (const name in headers) all.push(name, headers[name] as string)
  response.writeHead(status, all).end(text)
}

const errorAnswer = ({ error }: Refusal): PlainAnswer => ({ status: error.code, text: JSON.stringify({ error }) })

/**
 * Makes a function that answers requests without the layers of the contract's way: at once, or in one fiber. None if traces
 * or the access log are on, which are left to those. Invariant: both ways answer the same.
 */
export const makePlainAnswering = Effect.gen(function* () {
  const isTraced = (yield* References.TracerEnabled) && (yield* Tracer.Tracer) !== Tracer.nativeTracer
  if (isTraced || (yield* AccessLog)) return undefined
  const timeout = Duration.toMillis(yield* RequestTimeout)
  const services = ofRequests(yield* Effect.context())

  return (
    response: ServerResponse,
    request_id: string,
    mayRepeat: boolean,
    answering: Effect.Effect<PlainAnswer, Refusal>
  ): void => {
    const settle = (exit: Exit.Exit<PlainAnswer, Refusal>): void => {
      if (Exit.isSuccess(exit)) return write(response, request_id, exit.value)
      const { cause } = exit
      const refusal = Option.getOrUndefined(Cause.findErrorOption(cause))
      if (refusal !== undefined) return write(response, request_id, errorAnswer(refusal))
      if (Cause.hasInterruptsOnly(cause)) return
      Effect.runForkWith(services)(answerDefect(cause, request_id, mayRepeat)).addObserver((logged) => {
        if (Exit.isSuccess(logged)) write(response, request_id, errorAnswer(logged.value))
      })
    }
    const deadline = { until: performance.now() + timeout }
    const fork = (rest: typeof answering) => Effect.runForkWith(Context.add(services, CurrentDeadline, deadline))(rest)
    response.once("close", AtHand.run(answering, deadline, fork, settle))
  }
})
