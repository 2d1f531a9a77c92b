import { createHmac, randomUUID } from "node:crypto"
import { Context, Effect, Exit, Layer, Option, Redacted } from "effect"
import { EventCursor, Events, type FeedEvent, type Progress } from "../../port/Events.ts"
import { makeMeter } from "../../runtime/Meter.ts"
import { repeatInBackground } from "../../runtime/repeatInBackground.ts"

/** The operator's endpoint, to which events are posted, and the secrets that sign them: several during rotation. */
export interface Endpoint {
  readonly url: URL
  readonly secrets: ReadonlyArray<Redacted.Redacted<Uint8Array>>
}

/** The webhook's endpoint; none if no webhook is set. */
export class WebhookEndpoint extends Context.Service<WebhookEndpoint, Option.Option<Endpoint>>()(
  "byok/WebhookEndpoint"
) {}

/** A webhook message: its id is sent as a header, the rest as the JSON body. */
interface Message {
  readonly id: string
  readonly type: string
  readonly timestamp: string
  readonly data: object
}

const postTimeoutMillis = 10_000
/** An entry of the audit log has the events of one `seq`. */
const entriesPerPage = 100

/** The headers of Standard Webhooks; `now` is in seconds since 1970. */
export const signedHeaders = ({ secrets }: Pick<Endpoint, "secrets">, id: string, now: number, body: string) => ({
  "content-type": "application/json",
  "webhook-id": id,
  "webhook-timestamp": String(now),
  "webhook-signature": secrets
    .map((secret) => createHmac("sha256", Redacted.value(secret)).update(`${id}.${now}.${body}`).digest("base64"))
    .map((signature) => `v1,${signature}`)
    .join(" ")
})

/** Describes a failed post without the endpoint's address. */
const describeFailure = (error: unknown) => {
  if (error instanceof DOMException) return `did not answer in ${postTimeoutMillis / 1000} seconds`
  const { code } = Object((error as Error).cause) as { readonly code?: unknown }
  return `could not be reached${typeof code === "string" ? ` (${code})` : ""}`
}

/** Posts a message once, without following redirects. Returns the HTTP status, or why there was none. */
export const post = (endpoint: Endpoint, { id, ...message }: Message) =>
  Effect.promise(async (signal) => {
    const body = JSON.stringify(message)
    const headers = signedHeaders(endpoint, id, Math.floor(Date.now() / 1000), body)
    try {
      const response = await fetch(endpoint.url, {
        ...{ method: "POST", redirect: "manual", headers, body },
        signal: AbortSignal.any([signal, AbortSignal.timeout(postTimeoutMillis)])
      })
      await response.body?.cancel()
      return response.status
    } catch (error) {
      return describeFailure(error)
    }
  })

/** Whether the endpoint accepted the message, by the result of `post`. */
export const isAccepted = (result: number | string): boolean =>
  typeof result === "number" && result >= 200 && result < 300

const messageOf = ({ action: type, at: timestamp, id, ...data }: FeedEvent): Message => ({
  id,
  type,
  timestamp,
  data: { id, ...data }
})

/**
 * Posts events to the endpoint until the service stops. Invariant: the cursor moves only after a success, so each event
 * is delivered at least once, and each instance posts in the order of events.
 */
const deliver = Effect.fnUntraced(function* (endpoint: Endpoint) {
  const cursor = yield* EventCursor
  const { next } = yield* Events
  const { counter, gauge } = yield* makeMeter
  const holder = randomUUID()
  const count = {
    accepted: counter("byok.webhook.deliveries", { result: "taken" }),
    refused: counter("byok.webhook.deliveries", { result: "refused" })
  }
  let backlog = { waiting: 0, lag: 0 }
  gauge("byok.webhook.waiting_entries", {}, () => backlog.waiting)
  gauge("byok.webhook.lag", {}, () => backlog.lag)

  /**
   * Posts until no event is left, a delivery fails, or another instance takes the cursor. Returns whether a delivery
   * failed. Several events may share a `seq`, so progress is recorded within one.
   */
  const deliverFrom = Effect.fnUntraced(function* (start: Progress) {
    let { after, done: deliveredOfNext } = start
    for (;;) {
      const { events, last_seq } = yield* next(after, entriesPerPage)
      if (last_seq === after) return false
      for (const [index, event] of events.entries()) {
        if (index < deliveredOfNext) continue
        const wasAccepted = isAccepted(yield* post(endpoint, messageOf(event)))
        count[wasAccepted ? "accepted" : "refused"]()
        if (!wasAccepted) return true
        const isLastOfSeq = events[index + 1]?.seq !== event.seq
        const indexOfFirst = events.findIndex(({ seq }) => seq === event.seq)
        const previousSeq = events[indexOfFirst - 1]?.seq ?? after
        const progress = isLastOfSeq
          ? { after: event.seq, done: 0 }
          : { after: previousSeq, done: index - indexOfFirst + 1 }
        if (!(yield* cursor.advance(holder, progress))) return false
      }
      // In case the page ends with an entry that has no events.
      if (!(yield* cursor.advance(holder, { after: last_seq, done: 0 }))) return false
      after = last_seq
      deliveredOfNext = 0
    }
  })

  const deliverIfDue = Effect.gen(function* () {
    const state = yield* cursor.state
    if (Option.isSome(state)) backlog = state.value
    if (Option.isSome(state) && !state.value.isDue) return
    const progress = yield* cursor.take(holder)
    if (Option.isNone(progress)) return
    yield* Effect.onExit(deliverFrom(progress.value), (exit) => {
      const hasFailed = Exit.isSuccess(exit) && exit.value
      return Effect.ignore(cursor.free(holder, hasFailed))
    })
  })
  yield* repeatInBackground("1 second", deliverIfDue, "Events could not be delivered to the webhook")
})

export const layer = Layer.effectDiscard(
  Effect.flatMap(WebhookEndpoint, Option.match({ onNone: () => Effect.void, onSome: (endpoint) => deliver(endpoint) }))
)
