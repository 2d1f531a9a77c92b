import { Duration, Effect, Option, Schedule } from "effect"
import { HttpBody, HttpClient, HttpClientRequest } from "effect/http"
import type { RecordedSpan } from "./RecordedSpan.ts"
import { frameOf, type Target, writeSpan } from "./writeSpan.ts"

/** How many bytes of spans are sent at once: some hundred spans. */
const batch = 256 * 1024

/** How many batches may wait. Beyond that spans are dropped: a collector that stands still costs this much memory. */
const most = 32

/** How many spans are written at a time. One by one, each would find the processor's caches full of other work. */
const together = 128

/** How long spans wait for others. */
const interval = Duration.seconds(1)

const timeout = Duration.seconds(10)

/** How long a stop waits for the last spans. */
const farewell = Duration.seconds(3)

/** A collector that fails is reported once a minute at most, in milliseconds. */
const reportInterval = 60_000

const comma = ",".charCodeAt(0)

interface Collector {
  readonly url: URL
  readonly headers: Readonly<Record<string, string>>
  readonly resource: Readonly<Record<string, string>>
}

interface Batch extends Target {
  readonly bytes: Buffer
  spans: number
}

/**
 * Makes the queue of spans for a collector. They are written down soon after they end, for objects that wait long would
 * cost more, and sent off the path of requests, one batch after the other. Returns what adds a span.
 */
export const makeSpanQueue = Effect.fnUntraced(function* ({ headers, resource, url }: Collector) {
  const [before, after] = frameOf(resource)
  /** Room for spans in a batch, which ends with the frame. */
  const room = batch - after.length
  const ended: Array<RecordedSpan> = []
  const waiting: Array<Batch> = []
  /** Memory of batches that were sent, to be filled again. */
  const free: Array<Buffer> = []
  let filling: Batch | undefined
  let dropped = 0
  let nextReport = 0
  let wake = () => {}

  const client = HttpClient.filterStatusOk(yield* HttpClient.HttpClient)
  const request = HttpClientRequest.post(url, { headers })
  const send = ({ bytes, length, spans }: Batch) => {
    const body = bytes.subarray(0, length + after.copy(bytes, length))
    return client.execute(HttpClientRequest.setBody(request, HttpBody.uint8Array(body, "application/json"))).pipe(
      Effect.flatMap((response) => response.arrayBuffer),
      Effect.timeout(timeout),
      Effect.retry({ schedule: Schedule.spaced("1 second"), times: 2 }),
      Effect.matchCause({ onFailure: () => void (dropped += spans), onSuccess: () => void free.push(bytes) })
    )
  }

  const report = Effect.suspend(() => {
    const now = performance.now()
    if (dropped === 0 || now < nextReport) return Effect.void
    nextReport = now + reportInterval
    const lost = dropped
    dropped = 0
    return Effect.logWarning(`The collector of traces does not keep up or refuses: ${lost} spans were dropped`)
  })

  const begin = (): Batch => {
    const bytes = free.pop() ?? Buffer.allocUnsafeSlow(batch)
    return { bytes, length: before.copy(bytes), spans: 0 }
  }
  /** Whether there was room. */
  const put = (batch: Batch, span: RecordedSpan) => {
    const { length } = batch
    if (batch.spans > 0) batch.bytes[batch.length++] = comma
    writeSpan(batch, span)
    if (batch.length <= room) {
      batch.spans += 1
      return true
    }
    batch.length = length
    return false
  }
  const write = (span: RecordedSpan): void => {
    if (waiting.length >= most) {
      dropped += 1
      return
    }
    filling ??= begin()
    if (put(filling, span)) return
    if (filling.spans > 0) {
      waiting.push(filling)
      filling = begin()
      wake()
      if (put(filling, span)) return
    }
    dropped += 1
  }
  const writeEnded = (): void => {
    ended.forEach(write)
    ended.length = 0
  }
  const sendWaiting = Effect.gen(function* () {
    for (let first = waiting.shift(); first !== undefined; first = waiting.shift()) yield* send(first)
    yield* report
  })
  /** The last batch too, however little is in it. */
  const sendAll = Effect.suspend(() => {
    writeEnded()
    if (filling !== undefined && filling.spans > 0) waiting.push(filling)
    filling = undefined
    return sendWaiting
  })
  const full = Effect.callback<true>((resume) => {
    wake = () => resume(Effect.succeed(true))
  })
  const untraced = <A, E, R>(effect: Effect.Effect<A, E, R>) => Effect.withTracerEnabled(effect, false)

  yield* Effect.addFinalizer(() => Effect.timeoutOption(untraced(Effect.interruptible(sendAll)), farewell))
  yield* Effect.forkScoped(
    untraced(
      Effect.forever(
        Effect.flatMap(
          Effect.timeoutOption(full, interval),
          Option.match({ onNone: () => sendAll, onSome: () => sendWaiting })
        )
      )
    )
  )

  return (span: RecordedSpan): void => {
    if (ended.push(span) >= together) writeEnded()
  }
})
