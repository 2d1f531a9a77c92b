import { Effect } from "effect"
import { KeyStoreUnavailable } from "../port/CipherErrors.ts"

/** A key store may be elsewhere, and is not waited for longer than a database is. */
export const inKeyStoreTime = <A, E>(asked: Effect.Effect<A, E>): Effect.Effect<A, E | KeyStoreUnavailable> =>
  Effect.timeoutOrElse(asked, {
    duration: "3 seconds",
    orElse: () => Effect.fail(new KeyStoreUnavailable({ reason: "it does not answer" }))
  })
