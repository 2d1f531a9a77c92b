import { Context, Duration, Effect } from "effect"
import { onEnd } from "./onEnd.ts"

/** How long a request may wait for queues and stores in total. The wait for its body does not count. */
export class RequestTimeout extends Context.Service<RequestTimeout, Duration.Duration>()("byok/RequestTimeout") {}

/** The moment at which a request fails. */
export interface Deadline {
  /** In milliseconds of the monotonic clock. */
  until: number
}

/** The deadline shared by every step of the current request; undefined if it has none. */
export const CurrentDeadline = Context.Reference<Deadline | undefined>("byok/CurrentDeadline", {
  defaultValue: () => undefined
})

/** Gives a request a deadline, unless it already has one. */
export const withDeadline =
  (timeout: Duration.Duration) =>
  <A, E, R>(request: Effect.Effect<A, E, R>): Effect.Effect<A, E, R> =>
    Effect.withFiber((fiber) =>
      fiber.getRef(CurrentDeadline) === undefined
        ? Effect.provideService(request, CurrentDeadline, { until: performance.now() + Duration.toMillis(timeout) })
        : request
    )

/** Extends the deadline by the duration of a wait, such as for the rest of a body. */
export const withPausedDeadline = <A, E, R>(wait: Effect.Effect<A, E, R>): Effect.Effect<A, E, R> =>
  Effect.withFiber((fiber) => {
    const deadline = fiber.getRef(CurrentDeadline)
    if (deadline === undefined) return wait
    const began = performance.now()
    return onEnd(wait, () => void (deadline.until += performance.now() - began))
  })

/** Milliseconds until the deadline of the current request, at most `limit`; without a deadline, `limit`. */
export const timeLeft = (limit: number): Effect.Effect<number> =>
  Effect.withFiber((fiber) => {
    const deadline = fiber.getRef(CurrentDeadline)
    return Effect.succeed(
      deadline === undefined ? limit : Math.max(0, Math.min(limit, deadline.until - performance.now()))
    )
  })
