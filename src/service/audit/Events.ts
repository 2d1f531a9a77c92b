import { Clock, DateTime, Duration, Effect, Layer, Option, Schema } from "effect"
import { type AccountEvent, EventId } from "../../domain/AuditEvent.ts"
import { InvalidParams } from "../../domain/Errors.ts"
import type { AccountId } from "../../domain/Identifiers.ts"
import { type Actor, ifAllowed } from "../../domain/Principal.ts"
import { AuditLog, type ReadEntry } from "../../port/AuditLog.ts"
import { RequestTimeout, withDeadline } from "../../runtime/Deadline.ts"
import { type EventPage, Events, type FeedEvent } from "../../port/Events.ts"
import { parseEvents } from "./Audit.ts"

const isEventId = Schema.is(EventId)

/** How often `next` reads again while it waits. */
const pollIntervalMillis = 500

/** The time that no change of the machine's clock moves. */
const monotonicMillis = Effect.map(Clock.monotonicTimeNanos, (nanos) => Number(nanos) / 1e6)

/** The events of an entry, with the name of the API key that caused them. */
const feedEventsOf = (entry: ReadEntry) => {
  const { actor_name: name, at, seq } = entry
  return parseEvents(entry).map((event, index) => {
    const { actor, ...details } = event as { readonly actor?: Actor; readonly action: string }
    return {
      ...{ id: `${seq}.${index}`, seq: Number(seq), at, ...details },
      actor: actor?.kind === "api_key" ? { ...actor, name } : (actor ?? {})
    } satisfies FeedEvent
  })
}

/** Shows the events of an entry to its account: without `seq`, the account's id, and the operator's user name. */
const accountEventsOf = (entry: ReadEntry) =>
  feedEventsOf(entry).map((event, index) => {
    const {
      account_id: _account,
      actor,
      at,
      seq: _seq,
      ...rest
    } = event as FeedEvent & { readonly account_id?: unknown }
    const { user: _user, ...visibleActor } = actor as { readonly user?: string }
    return { ...rest, id: `${entry.id}.${index}`, at: DateTime.makeUnsafe(at), actor: visibleActor } as AccountEvent
  })

/** Reads events for accounts, and for the subscriber to all accounts. */
export const layer = Layer.effect(
  Events,
  Effect.gen(function* () {
    const { find, read } = yield* AuditLog
    const withinDeadline = withDeadline(yield* RequestTimeout)

    /** Reads the events that follow one of the account's, which may be in the middle of its entry. */
    const readFrom = Effect.fnUntraced(function* (account_id: AccountId, { after, before, ...page }: EventPage) {
      if (after !== undefined && before !== undefined) {
        return yield* InvalidParams.of({ path: ["before"], message: "cannot be combined with after" })
      }
      const [name, inclusive] = after === undefined ? (["before", 1] as const) : (["after", -1] as const)
      const cursor = after ?? before
      if (cursor === undefined || cursor === "0") {
        const entries = yield* read({ ...page, account_id, ...(cursor === undefined ? {} : { [name]: 0 }) })
        return entries.flatMap(accountEventsOf)
      }
      const [id = "", place] = cursor.split(".")
      const entry = isEventId(cursor) ? yield* find(account_id, id) : Option.none()
      const skipped = Number(place) + 1
      if (Option.isNone(entry) || skipped > entry.value.events) {
        return yield* InvalidParams.of({ path: [name], message: "must be the id of an event of this account" })
      }
      const bound = entry.value.seq + (skipped < entry.value.events ? inclusive : 0)
      const entries = yield* read({ ...page, account_id, [name]: bound })
      return entries.flatMap((one) => accountEventsOf(one).slice(one.id === id ? skipped : 0))
    })

    return {
      list: (page) => withinDeadline(ifAllowed("events", (account_id) => readFrom(account_id, page))),
      next: Effect.fnUntraced(function* (after, limit, wait = 0) {
        const began = yield* monotonicMillis
        for (;;) {
          const entries = yield* withinDeadline(read({ after, limit }))
          const remaining = Duration.toMillis(wait) - ((yield* monotonicMillis) - began)
          if (entries.length > 0 || remaining <= 0) {
            return { events: entries.flatMap(feedEventsOf), last_seq: Number(entries.at(-1)?.seq ?? after) }
          }
          yield* Effect.sleep(Math.min(remaining, pollIntervalMillis))
        }
      })
    }
  })
)
