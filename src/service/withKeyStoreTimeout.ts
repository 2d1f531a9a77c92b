import { Effect } from "effect"
import { KeyStoreUnavailable } from "../port/CipherErrors.ts"

/** The key store may be remote, so waiting for it is limited like waiting for the database. */
export const withKeyStoreTimeout = <A, E>(call: Effect.Effect<A, E>): Effect.Effect<A, E | KeyStoreUnavailable> =>
  Effect.timeoutOrElse(call, {
    duration: "3 seconds",
    orElse: () => Effect.fail(new KeyStoreUnavailable({ reason: "it does not answer" }))
  })
