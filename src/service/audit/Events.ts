import { Clock, DateTime, Duration, Effect, Exit, Layer } from "effect"
import type { AccountEvent } from "../../domain/AuditEvent.ts"
import { accountOf, type Actor, CurrentPrincipal } from "../../domain/Principal.ts"
import { AuditLog, type ReadEntry } from "../../port/AuditLog.ts"
import { RequestTimeout, withDeadline } from "../../runtime/Deadline.ts"
import { Events, type FeedEvent } from "../../port/Events.ts"
import { eventsOf } from "./Audit.ts"

/** Poll interval while a subscriber waits, in milliseconds. */
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

/** Removes the account's own id and the operator's user name. */
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
    const fork = Effect.runForkWith(yield* Effect.context())
    const waiting = new Set<{ readonly after: number; readonly wake: () => void }>()
    let isPolling = false
    /** Polls for all waiting subscribers. A failure wakes them too: each reads, and fails, by itself. */
    const poll = Effect.gen(function* () {
      while (waiting.size > 0) {
        const after = Math.min(...Array.from(waiting, ({ after }) => after))
        const next = yield* Effect.exit(inTime(read({ after, limit: 1 })))
        if (Exit.isFailure(next) || next.value.length > 0) for (const { wake } of waiting) wake()
        yield* Effect.sleep(pollInterval)
      }
      isPolling = false
    })
    const untilNext = (after: number) =>
      Effect.callback<undefined>((resume) => {
        const waiter = { after, wake: () => (waiting.delete(waiter), resume(Effect.undefined)) }
        waiting.add(waiter)
        if (!isPolling) {
          isPolling = true
          fork(Effect.andThen(Effect.sleep(pollInterval), poll))
        }
        return Effect.sync(() => waiting.delete(waiter))
      })
    return {
      list: (page) =>
        Effect.flatMap(CurrentPrincipal, (principal) =>
          inTime(
            Effect.map(read({ ...page, account_id: accountOf(principal) }), (entries) =>
              entries.flatMap(feedEventsOf).map(accountEventOf)
            )
          )
        ),
      next: Effect.fnUntraced(function* (after, limit, wait = 0) {
        const until = (yield* Clock.currentTimeMillis) + Duration.toMillis(Duration.fromInputUnsafe(wait))
        for (;;) {
          const entries = yield* inTime(read({ after, limit }))
          const left = until - (yield* Clock.currentTimeMillis)
          if (entries.length > 0 || left <= 0) {
            return { events: entries.flatMap(feedEventsOf), last_seq: Number(entries.at(-1)?.seq ?? after) }
          }
          yield* Effect.timeoutOption(untilNext(after), left)
        }
      })
    }
  })
)
