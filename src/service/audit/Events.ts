import { Clock, DateTime, Duration, Effect, Layer } from "effect"
import type { AccountEvent } from "../../domain/AuditEvent.ts"
import { type Actor, CurrentCaller } from "../../domain/CurrentCaller.ts"
import { AuditLog, type ReadEntry } from "../../port/AuditLog.ts"
import { RequestTimeout, withDeadline } from "../../port/Deadline.ts"
import { Events, type FeedEvent } from "../../port/Events.ts"
import { eventsOf } from "./Audit.ts"

/** How often whoever waits looks for the next entry, in milliseconds. */
const pollInterval = 500

const feedEventsOf = (entry: ReadEntry) => {
  const { actor_name: name, at, seq } = entry
  return eventsOf(entry).map((event, n) => {
    const { actor, ...act } = event as { readonly actor?: Actor; readonly action: string }
    return {
      ...{ id: `${seq}.${n}`, seq: Number(seq), at, ...act },
      actor: actor?.kind === "api_key" ? { ...actor, name } : (actor ?? {})
    } satisfies FeedEvent
  })
}

/** Without what tells the account nothing: its own id, and what an operator is called on the operators' machines. */
const accountEventOf = (event: FeedEvent) => {
  const { account_id: _account, actor, at, ...rest } = event as FeedEvent & { readonly account_id?: unknown }
  const { user: _user, ...shown } = actor as { readonly user?: string }
  return { ...rest, at: DateTime.makeUnsafe(at), actor: shown } as AccountEvent
}

export const layer = Layer.effect(
  Events,
  Effect.gen(function* () {
    const { read } = yield* AuditLog
    const inTime = withDeadline(yield* RequestTimeout)
    return {
      list: (page) =>
        Effect.flatMap(CurrentCaller, ({ account_id }) =>
          inTime(Effect.map(read({ ...page, account_id }), (found) => found.flatMap(feedEventsOf).map(accountEventOf)))
        ),
      next: Effect.fnUntraced(function* (after, limit, wait = 0) {
        const until = (yield* Clock.currentTimeMillis) + Duration.toMillis(Duration.fromInputUnsafe(wait))
        for (;;) {
          const entries = yield* inTime(read({ after, limit }))
          const left = until - (yield* Clock.currentTimeMillis)
          if (entries.length > 0 || left <= 0) {
            return { events: entries.flatMap(feedEventsOf), last_seq: Number(entries.at(-1)?.seq ?? after) }
          }
          yield* Effect.sleep(Math.min(pollInterval, left))
        }
      })
    }
  })
)
