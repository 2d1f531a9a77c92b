import { Cause, Effect } from "effect"
import { DatabaseFailure } from "../port/DatabaseFailure.ts"

/** Milliseconds for which one line stands for all requests that failed for the same cause. */
const interval = 1000

/** An outage of the database: not this request's fault, and over by itself. */
const outageIn = (cause: Cause.Cause<unknown>) => {
  const failure = Cause.squash(cause)
  return failure instanceof DatabaseFailure && (failure.isTransient || failure.kind === "Deadline")
    ? `${failure._tag} ${failure.message}`
    : undefined
}

/**
 * Makes the log of unexpected failures (D11). A database that is down fails every request for the same cause: that is
 * one line a second, with the number of requests that met it (F5). Anything else is logged in full.
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
