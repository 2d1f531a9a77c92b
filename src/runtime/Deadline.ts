import { Context, Duration, Effect } from "effect"

/** How long one request may wait for stores in all, the body's arrival not counted. */
export const RequestTimeout = Context.Reference<Duration.Duration>("byok/RequestTimeout", {
  defaultValue: () => Duration.seconds(3)
})

/** When a request is given up, in milliseconds of the monotonic clock. */
export interface Deadline {
  until: number
}

/** The deadline that every step of the current request draws from; none outside of requests. */
export const CurrentDeadline = Context.Reference<Deadline | undefined>("byok/CurrentDeadline", {
  defaultValue: () => undefined
})

export const withDeadline =
  (timeout: Duration.Duration) =>
  <A, E, R>(request: Effect.Effect<A, E, R>): Effect.Effect<A, E, R> =>
    Effect.withFiber((fiber) =>
      fiber.getRef(CurrentDeadline) === undefined
        ? Effect.provideService(request, CurrentDeadline, { until: performance.now() + Duration.toMillis(timeout) })
        : request
    )

/** Waits for what does not draw from the deadline, such as the rest of a body. */
export const withoutDeadline = <A, E, R>(wait: Effect.Effect<A, E, R>): Effect.Effect<A, E, R> =>
  Effect.withFiber((fiber) => {
    const deadline = fiber.getRef(CurrentDeadline)
    if (deadline === undefined) return wait
    const began = performance.now()
    return Effect.onExit(wait, () => Effect.sync(() => void (deadline.until += performance.now() - began)))
  })

/** Milliseconds of `most` that the current request has left. */
export const timeLeft = (most: number): Effect.Effect<number> =>
  Effect.withFiber((fiber) => {
    const deadline = fiber.getRef(CurrentDeadline)
    return Effect.succeed(
      deadline === undefined ? most : Math.max(0, Math.min(most, deadline.until - performance.now()))
    )
  })
