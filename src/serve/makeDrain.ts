import { Duration, Effect, Layer } from "effect"
import { stopSignals } from "./stopSignals.ts"

/**
 * A service that is asked to stop reports at once that it is not ready, and answers as before for the delay, so that load
 * balancers have time to notice. A second signal ends the delay.
 */
export const makeDrain = Effect.fnUntraced(function* (delay: Duration.Duration) {
  let draining = false
  let hastened = false
  let end = () => {}
  const endDelay = () => {
    hastened = true
    end()
  }
  yield* stopSignals((count) => {
    draining = true
    if (count > 1) endDelay()
  })
  const wait = Effect.callback<true>((resume) => {
    if (!draining || hastened) return resume(Effect.succeed(true))
    const timer = setTimeout(() => end(), Duration.toMillis(delay))
    end = () => {
      clearTimeout(timer)
      resume(Effect.succeed(true))
    }
  })
  return {
    isDraining: () => draining,
    /** Built on the server, it is released before it. */
    layer: Layer.effectDiscard(Effect.addFinalizer(() => wait))
  }
})
