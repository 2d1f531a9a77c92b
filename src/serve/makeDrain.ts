import cluster from "node:cluster"
import { Duration, Effect, Layer } from "effect"
import { stopSignals } from "./stopSignals.ts"

/** Sent to each of several processes: it must not wait any longer. */
const hasten = { hasten: true } as const

/** Makes a process of several stop without waiting any longer. */
export const hastenWorker = (worker: { readonly send: (message: object) => boolean }): void => void worker.send(hasten)

const isHasten = (message: unknown) => typeof message === "object" && message !== null && "hasten" in message

/**
 * A service that is asked to stop is not ready from then on, and for the delay answers as before: balancers have time to
 * notice. A second signal ends the delay. Of several processes only the first one counts signals, as all may get each.
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
    if (count > 1 && cluster.isPrimary) endDelay()
  })
  const onMessage = (message: unknown) => {
    if (isHasten(message)) endDelay()
  }
  yield* Effect.acquireRelease(
    Effect.sync(() => process.on("message", onMessage)),
    () => Effect.sync(() => process.off("message", onMessage))
  )
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
