import { isUtf8 } from "node:buffer"
import type { IncomingMessage, ServerResponse } from "node:http"
import { Cause, Context, Duration, Effect, Exit, Logger, Option, References, Scope, Tracer } from "effect"
import { InvalidParams } from "../domain/Errors.ts"
import * as AtHand from "../port/AtHand.ts"
import { CurrentDeadline, RequestTimeout } from "../port/Deadline.ts"
import { answerDefect } from "./Envelope.ts"
import { bodyDecoder, type makeArriving, maxBytes, readArrived } from "./RequestDecodingLive.ts"
import { AccessLog } from "./traceAndLog.ts"

/** An answer in JSON, beside the headers that each has. */
export interface PlainAnswer {
  readonly status: number
  readonly text: string
  readonly headers?: Readonly<Record<string, string>>
}

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

/** Passes a body to `take` once it is admitted, and wipes it: what was read from it is text by then, and may hold a key. */
export const onBody = (
  source: IncomingMessage,
  { admit, admitArrived }: Pick<ReturnType<typeof makeArriving>, "admit" | "admitArrived">,
  take: (body: Buffer) => void
): void => {
  const passOn = (body: Buffer, parts: ReadonlyArray<Buffer> = []) => {
    take(body)
    for (const bytes of [body, ...parts]) bytes.fill(0)
  }
  const hasWaited = source.complete
  // By then a body that came along with its head has been parsed, in one part.
  process.nextTick(() => {
    if (source.complete && !hasWaited) return admitArrived(() => passOn(readArrived(source)))
    const parts: Array<Buffer> = []
    source
      .on("data", (part: Buffer) => {
        admit(part)
        parts.push(part)
      })
      .once("end", () => passOn(Buffer.concat(parts), parts))
  })
}

const refused = (message: string) => Exit.fail(InvalidParams.of({ path: [], message }))

export const jsonOf = (bytes: Buffer): Exit.Exit<unknown, InvalidParams> => {
  if (!isUtf8(bytes)) return refused("must be UTF-8")
  try {
    return Exit.succeed(JSON.parse(bodyDecoder.decode(bytes)))
  } catch {
    return refused("must be valid JSON")
  }
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
