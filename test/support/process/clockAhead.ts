import { Clock, Duration, Effect } from "effect"

/** A clock that is ahead of the current one; its monotonic time is the same. */
export const clockAhead = (by: Duration.Input) =>
  Effect.map(Clock.Clock, (clock) => {
    const now = () => clock.currentTimeMillisUnsafe() + Duration.toMillis(by)
    return Object.create(clock, {
      currentTimeMillisUnsafe: { value: now },
      currentTimeMillis: { value: Effect.sync(now) }
    }) as Clock.Clock
  })
