import { Cause, Effect } from "effect"
import { KeyStoreUnavailable } from "../port/CipherErrors.ts"
import { DatabaseFailure } from "../port/DatabaseFailure.ts"

/** Milliseconds for which one line stands for all requests that a store failed for the same cause. */
const interval = 1000

/** An outage: not of this request, and over by itself. */
const outageIn = (cause: Cause.Cause<unknown>) => {
  const failure = Cause.squash(cause)
  if (failure instanceof DatabaseFailure) {
    return failure.isTransient || failure.kind === "Deadline" ? `the database failed: ${failure.message}` : undefined
  }
  return failure instanceof KeyStoreUnavailable ? `the key store is unavailable: ${failure.reason}` : undefined
}

/**
 * Makes the log of unexpected failures (D11). A store that is down fails every request for the same cause: that is one
 * line a second, with the number of requests that met it. Anything else is logged in full.
 */
export const makeFailureLog = () => {
  const seen = new Map<string, { next: number; more: number }>()
  return (cause: Cause.Cause<unknown>) =>
    Effect.suspend(() => {
      const failure = outageIn(cause)
      if (failure === undefined) return Effect.logError("Unexpected failure", cause)
      const now = performance.now()
      const before = seen.get(failure) ?? { next: 0, more: 0 }
      if (now < before.next) {
        before.more += 1
        return Effect.void
      }
      seen.set(failure, { next: now + interval, more: 0 })
      return Effect.logError(`Unexpected failure: ${failure}${before.more > 0 ? ` (${before.more} more before)` : ""}`)
    })
}
