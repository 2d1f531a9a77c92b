import { Effect, Fiber } from "effect"
import { KeyStoreUnavailable } from "../port/Cipher.ts"
import { timeLeft } from "../port/Deadline.ts"

/** A key store may be remote: waits at most 3 seconds for it, and never beyond the deadline of the request. */
export const withKeyStoreTimeout = <A, E>(call: Effect.Effect<A, E>): Effect.Effect<A, E | KeyStoreUnavailable> =>
  Effect.flatMap(timeLeft(3000), (duration) =>
    Effect.timeoutOrElse(call, {
      duration,
      orElse: () => Effect.fail(new KeyStoreUnavailable({ reason: "it does not answer" }))
    })
  )

/** As `withKeyStoreTimeout`, without a timer for a key store that answers at once, as a keyring does. */
export const atOnceOrInTime = <A, E>(call: Effect.Effect<A, E>): Effect.Effect<A, E | KeyStoreUnavailable> =>
  Effect.flatMap(
    Effect.forkChild(call, { startImmediately: true }),
    (fiber): Effect.Effect<A, E | KeyStoreUnavailable> =>
      fiber.pollUnsafe() ??
      Effect.onExit(withKeyStoreTimeout(Fiber.join(fiber)), () => Effect.sync(() => fiber.interruptUnsafe()))
  )
