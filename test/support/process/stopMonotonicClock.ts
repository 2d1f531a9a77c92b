import { Effect } from "effect"
import { vi } from "vitest"

/** Stops the monotonic clock until the scope closes. Returns a function that moves it on by milliseconds. */
export const stopMonotonicClock = Effect.acquireRelease(
  Effect.sync(() => {
    let now = performance.now()
    const stopped = vi.spyOn(performance, "now").mockImplementation(() => now)
    return { advance: (milliseconds: number) => void (now += milliseconds), stopped }
  }),
  ({ stopped }) => Effect.sync(() => stopped.mockRestore())
).pipe(Effect.map(({ advance }) => advance))
