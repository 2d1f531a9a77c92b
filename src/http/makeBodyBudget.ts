import { Effect } from "effect"
import { ServiceUnavailable } from "../domain/Errors.ts"

/** How many bytes the bodies of requests in progress may have: of one account, and of all. */
interface BodyLimits {
  readonly account: number
  readonly total: number
}

/**
 * Makes a budget that never counts more bytes than its limits: a request that would exceed one fails at once, any other
 * counts its bytes until it ends.
 */
export const makeBodyBudget = (limits: BodyLimits) => {
  const accounts = new Map<string, number>()
  let total = 0
  const count = (account: string, bytes: number) => {
    const own = (accounts.get(account) ?? 0) + bytes
    if (bytes > 0 && (own > limits.account || total + bytes > limits.total)) return false
    total += bytes
    if (own === 0) accounts.delete(account)
    else accounts.set(account, own)
    return true
  }
  return <A, E, R>(account: string, bytes: number, request: Effect.Effect<A, E, R>) =>
    Effect.suspend(() => {
      let counted = false
      const begun = Effect.suspend((): Effect.Effect<A, E | ServiceUnavailable, R> => {
        counted = count(account, bytes)
        return counted ? request : Effect.fail(new ServiceUnavailable())
      })
      return Effect.onExit(begun, () =>
        Effect.sync(() => {
          if (counted) count(account, -bytes)
        })
      )
    })
}
