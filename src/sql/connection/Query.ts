import { Cause, Effect, type Schema } from "effect"
import { SqlError } from "effect/sql"
import { DatabaseFailure } from "../../port/DatabaseFailure.ts"
import { failureOf } from "./DatabaseErrors.ts"

export type QueryError = SqlError.SqlError | Schema.SchemaError | DatabaseFailure

/** The name of a statement in traces and metrics, such as `credentials.find`. */
export type Operation = `${string}.${string}`

/** A query whose errors may quote stored values. It must be safe to run twice. */
export type Query<A> = Effect.Effect<A, QueryError>

/** SQLSTATEs of a transaction that met another, which has ended by the time of a retry: a deadlock, or a serialization failure. */
const conflicts = ["40P01", "40001"]

/** Milliseconds before a retry. The first is immediate, because the pool may have returned a dead connection. */
const defaultPause = 100

/** The failure of a commit that gave up waiting for its replicas: a failover may lose it. */
const unknownOutcome = new DatabaseFailure({ kind: "UnknownOutcome", sqlstate: "01000", constraint: undefined })

const fieldsOf = ({ constraint, kind, sqlstate }: DatabaseFailure) => ({ constraint, kind, sqlstate })

/** The SQL error in a cause, or in a defect: Effect dies if a transaction has no connection left to roll back. */
const sqlErrorIn = ({ reasons }: Cause.Cause<QueryError>) =>
  reasons
    .map((reason) => (reason._tag === "Fail" ? reason.error : reason._tag === "Die" ? reason.defect : undefined))
    .find(SqlError.isSqlError)

/**
 * Makes a function that runs a query, and retries conflicts with other transactions and transient failures, such as a
 * change of leader, before `until` (milliseconds of the monotonic clock). Reduces SQL errors to a `DatabaseFailure`, passes each to `onFailure`,
 * and dies of other errors. Fails with `UnknownOutcome` if `unreplicated`, the number of the pool's commits that may
 * not be replicated, grows during the query.
 */
export const retryingWith = (
  unreplicated: () => number,
  onFailure: (failure: DatabaseFailure) => void = () => {},
  pause = defaultPause
) => {
  const attempt = <A>(
    query: Query<A>,
    until: () => number,
    retries: number,
    wasUnsent: boolean
  ): Effect.Effect<A, DatabaseFailure> =>
    Effect.suspend(() => {
      const before = unreplicated()
      return Effect.matchCauseEffect(query, {
        onSuccess: (answer) => (unreplicated() === before ? Effect.succeed(answer) : Effect.fail(unknownOutcome)),
        onFailure: (cause) => {
          const refused = cause.reasons.find(Cause.isFailReason)?.error
          if (refused?._tag === "DatabaseFailure") return Effect.fail(refused)
          const error = sqlErrorIn(cause)
          if (error === undefined) return Effect.die(Cause.squash(cause))
          const failure = failureOf(error)
          const isUnsent = wasUnsent && failure.isOfConnecting
          onFailure(failure)
          const wait = retries === 0 ? 0 : pause
          const mayRetry = failure.isTransient || conflicts.includes(failure.sqlstate ?? "")
          if (!mayRetry || performance.now() + wait >= until()) {
            return Effect.fail(isUnsent ? new DatabaseFailure({ ...fieldsOf(failure), isUnsent }) : failure)
          }
          const again = attempt(query, until, retries + 1, isUnsent)
          return wait === 0 ? again : Effect.andThen(Effect.sleep(wait), again)
        }
      })
    })
  return <A>(query: Query<A>, until: () => number) => attempt(query, until, 0, true)
}
