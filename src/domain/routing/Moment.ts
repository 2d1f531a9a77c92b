import type { Clock } from "effect"

/** One moment on the clock of cooldowns, and in milliseconds since 1970. */
export interface Moment {
  readonly monotonic: number
  readonly wall: number
}

/** Milliseconds of the monotonic clock, which nobody sets: the time of cooldowns and snapshots. */
export const monotonicMillis = (clock: Clock.Clock): number => Number(clock.monotonicTimeNanosUnsafe()) / 1e6

export const momentOf = (clock: Clock.Clock): Moment => ({
  monotonic: monotonicMillis(clock),
  wall: clock.currentTimeMillisUnsafe()
})
