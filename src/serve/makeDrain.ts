import { Duration, Effect, Layer } from "effect"

/** Asked to stop, the service is not ready at once but serves on for the delay. A second signal ends the delay. */
export const makeDrain = Effect.fnUntraced(function* (delay: Duration.Duration) {
  let signals = 0
  let endDelay = () => {}
  const onSignal = () => {
    signals += 1
    if (signals > 1) endDelay()
  }
  // Before the listener that interrupts the program, so that the finalizer below knows of the signal.
  yield* Effect.acquireRelease(
    Effect.sync(() => process.prependListener("SIGTERM", onSignal).prependListener("SIGINT", onSignal)),
    () => Effect.sync(() => process.off("SIGTERM", onSignal).off("SIGINT", onSignal))
  )
  const wait = Effect.callback((resume: (done: Effect.Effect<void>) => void) => {
    const done = () => resume(Effect.void)
    if (signals !== 1) return done()
    const timer = setTimeout(done, Duration.toMillis(delay))
    endDelay = () => {
      clearTimeout(timer)
      done()
    }
  })
  return {
    isDraining: () => signals > 0,
    /** Built on the server, so the delay passes before the server stops. */
    layer: Layer.effectDiscard(Effect.addFinalizer(() => wait))
  }
})
