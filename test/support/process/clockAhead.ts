import { Clock, Duration, Effect } from "effect"

/** The clock of a machine that is ahead. */
export const clockAhead = (by: Duration.Input) =>
  Effect.map(Clock.Clock, (clock) => {
    const now = () => clock.currentTimeMillisUnsafe() + Duration.toMillis(by)
    return Object.create(clock, {
      currentTimeMillisUnsafe: { value: now },
      currentTimeMillis: { value: Effect.sync(now) }
    }) as Clock.Clock
  })
