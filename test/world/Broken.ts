import { Cause } from "effect"
import { ServiceUnavailable } from "../../src/domain/Errors.ts"
import { DatabaseFailure } from "../../src/port/DatabaseFailure.ts"

/** A moment: statements have an order within a millisecond, too. */
export interface Moment {
  /** How many writes there had been. */
  readonly n: number
  readonly at: number
  /** How many tasks had run. */
  readonly ran: number
}

let first: string | undefined

/** Ends the history: a law does not hold. */
export const broken = (law: string): never => {
  first ??= law
  throw new Error(law)
}

/** The first law that was broken since this was last asked, also where the service has caught the error. */
export const takeBroken = (): string | undefined => {
  const law = first
  first = undefined
  return law
}

export const tagOf = (cause: Cause.Cause<unknown>): unknown => Reflect.get(Object(Cause.squash(cause)), "_tag")

const away = ["PoolsUnavailable", "StoredKeyUnusable", "UnknownKeyId"]

/** Whether the database could not be asked or the keyring was another one: what became of the request is not known. */
export const isAway = (cause: Cause.Cause<unknown>): boolean => {
  const failure = Cause.squash(cause)
  return (
    failure instanceof ServiceUnavailable || failure instanceof DatabaseFailure || away.includes(String(tagOf(cause)))
  )
}

/** A row that somebody changed by hand does not open. */
export const isUnsealed = (cause: Cause.Cause<unknown>): boolean =>
  ["StoredKeyUnusable", "AuthenticationFailed"].includes(String(tagOf(cause)))
