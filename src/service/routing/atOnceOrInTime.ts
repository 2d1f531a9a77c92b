import { Effect, Fiber } from "effect"
import type { KeyStoreUnavailable } from "../../port/Cipher.ts"
import { withKeyStoreTimeout } from "../withKeyStoreTimeout.ts"

/** As `withKeyStoreTimeout`, without a timer for a key store that answers at once, as a keyring does. */
export const atOnceOrInTime = <A, E>(call: Effect.Effect<A, E>): Effect.Effect<A, E | KeyStoreUnavailable> =>
  Effect.flatMap(
    Effect.forkChild(call, { startImmediately: true }),
    (fiber): Effect.Effect<A, E | KeyStoreUnavailable> =>
      fiber.pollUnsafe() ??
      Effect.onExit(withKeyStoreTimeout(Fiber.join(fiber)), () => Effect.sync(() => fiber.interruptUnsafe()))
  )
