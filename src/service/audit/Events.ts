import { Clock, DateTime, Duration, Effect, Layer } from "effect"
import type { AccountEvent } from "../../domain/AuditEvent.ts"
import { type Actor, ifAllowed } from "../../domain/Principal.ts"
import { AuditLog, type ReadEntry } from "../../port/AuditLog.ts"
import { RequestTimeout, withDeadline } from "../../runtime/Deadline.ts"
import { Events, type FeedEvent } from "../../port/Events.ts"
import { parseEvents } from "./Audit.ts"

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

/** Shows an event to its account: without the account's id, and without the operator's user name. */
const accountEventOf = (event: FeedEvent) => {
  const { account_id: _account, actor, at, ...rest } = event as FeedEvent & { readonly account_id?: unknown }
  const { user: _user, ...visibleActor } = actor as { readonly user?: string }
  return { ...rest, at: DateTime.makeUnsafe(at), actor: visibleActor } as AccountEvent
}

/** Reads events for accounts, and for the subscriber to all accounts. */
export const layer = Layer.effect(
  Events,
  Effect.gen(function* () {
    const { read } = yield* AuditLog
    const withinDeadline = withDeadline(yield* RequestTimeout)
    return {
      list: (page) =>
        withinDeadline(
          ifAllowed("events", (account_id) =>
            Effect.map(read({ ...page, account_id }), (entries) => entries.flatMap(feedEventsOf).map(accountEventOf))
          )
        ),
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
