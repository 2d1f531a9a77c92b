import { Duration, Effect, Schedule } from "effect"
import { HttpBody, HttpClient, HttpClientRequest } from "effect/http"
import { makeSpansJson } from "./makeSpansJson.ts"
import type { RecordedSpan } from "./RecordedSpan.ts"

/** How many spans are sent at once: writing them takes about a millisecond. */
const batch = 512

/** How many spans may wait. Beyond that they are dropped: a collector that stands still costs no memory. */
const most = 16_384

/** How long spans wait for others. */
const interval = Duration.seconds(1)

const timeout = Duration.seconds(10)

/** How long a stop waits for the last spans. */
const farewell = Duration.seconds(3)

/** A collector that fails is reported once a minute at most, in milliseconds. */
const reportInterval = 60_000

interface Collector {
  readonly url: URL
  readonly headers: Readonly<Record<string, string>>
  readonly resource: Readonly<Record<string, string>>
}

/**
 * Makes the queue of spans for a collector, which are written and sent off the path of requests, one batch after the
 * other. Returns what adds a span.
 */
export const makeSpanQueue = Effect.fnUntraced(function* ({ headers, resource, url }: Collector) {
  const json = makeSpansJson(resource)
  let waiting: Array<RecordedSpan> = []
  let dropped = 0
  let nextReport = 0
  let wake = () => {}

  const client = HttpClient.filterStatusOk(yield* HttpClient.HttpClient)
  const request = HttpClientRequest.post(url, { headers })
  const send = (spans: ReadonlyArray<RecordedSpan>) =>
    Effect.suspend(() =>
      client.execute(HttpClientRequest.setBody(request, HttpBody.text(json(spans), "application/json")))
    ).pipe(
      Effect.flatMap((response) => response.arrayBuffer),
      Effect.timeout(timeout),
      Effect.retry({ schedule: Schedule.spaced("1 second"), times: 2 }),
      Effect.catchCause(() => Effect.sync(() => void (dropped += spans.length)))
    )

  const report = Effect.suspend(() => {
    const now = performance.now()
    if (dropped === 0 || now < nextReport) return Effect.void
    nextReport = now + reportInterval
    const lost = dropped
    dropped = 0
    return Effect.logWarning(`The collector of traces does not keep up or refuses: ${lost} spans were dropped`)
  })

  const sendAll = Effect.gen(function* () {
    while (waiting.length > 0) {
      const spans = waiting.slice(0, batch)
      waiting = waiting.slice(batch)
      yield* send(spans)
    }
    yield* report
  })
  const full = Effect.callback<void>((resume) => {
    wake = () => resume(Effect.void)
  })
  const untraced = <A, E, R>(effect: Effect.Effect<A, E, R>) => Effect.withTracerEnabled(effect, false)

  yield* Effect.addFinalizer(() => Effect.timeoutOption(untraced(Effect.interruptible(sendAll)), farewell))
  yield* Effect.forkScoped(untraced(Effect.forever(Effect.andThen(Effect.timeoutOption(full, interval), sendAll))))

  return (span: RecordedSpan): void => {
    if (waiting.length >= most) {
      dropped += 1
      return
    }
    waiting.push(span)
    if (waiting.length === batch) wake()
  }
})
