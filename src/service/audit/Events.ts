import { Clock, DateTime, Duration, Effect, Exit, Layer } from "effect"
import type { AccountEvent } from "../../domain/AuditEvent.ts"
import { accountOf, type Actor, CurrentPrincipal } from "../../domain/Principal.ts"
import { AuditLog, type ReadEntry } from "../../port/AuditLog.ts"
import { RequestTimeout, withDeadline } from "../../runtime/Deadline.ts"
import { Events, type FeedEvent } from "../../port/Events.ts"
import { eventsOf } from "./Audit.ts"

/** How often the next entry is looked for while somebody waits, in milliseconds. */
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
    const fork = Effect.runForkWith(yield* Effect.context())
    const waiting = new Set<{ readonly after: number; readonly wake: () => void }>()
    let isLooking = false
    /** Looks for the next entry for all who wait. Whoever is woken reads for itself, also what went wrong. */
    const look = Effect.gen(function* () {
      while (waiting.size > 0) {
        const after = Math.min(...Array.from(waiting, ({ after }) => after))
        const found = yield* Effect.exit(inTime(read({ after, limit: 1 })))
        if (Exit.isFailure(found) || found.value.length > 0) for (const { wake } of waiting) wake()
        yield* Effect.sleep(pollInterval)
      }
      isLooking = false
    })
    const untilNext = (after: number) =>
      Effect.callback<undefined>((resume) => {
        const waiter = { after, wake: () => (waiting.delete(waiter), resume(Effect.undefined)) }
        waiting.add(waiter)
        if (!isLooking) {
          isLooking = true
          fork(Effect.andThen(Effect.sleep(pollInterval), look))
        }
        return Effect.sync(() => waiting.delete(waiter))
      })
    return {
      list: (page) =>
        Effect.flatMap(CurrentPrincipal, (principal) =>
          inTime(
            Effect.map(read({ ...page, account_id: accountOf(principal) }), (found) =>
              found.flatMap(feedEventsOf).map(accountEventOf)
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
