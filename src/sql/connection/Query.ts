import { Cause, Effect, type Schema } from "effect"
import { SqlError } from "effect/sql"
import { DatabaseFailure } from "../../port/DatabaseFailure.ts"
import { failureOf } from "./DatabaseErrors.ts"

export type QueryError = SqlError.SqlError | Schema.SchemaError

/** The name of a statement in traces and metrics, such as `credentials.find`. */
export type Operation = `${string}.${string}`

/** A query of an adapter, before its errors are scrubbed. It must be safe to run twice. */
export type Query<A> = Effect.Effect<A, QueryError>

/** SQLSTATE of a deadlock. */
export const deadlock = "40P01"

/** Milliseconds between attempts, except the first retry, which is immediate: the pool may have returned a dead connection. */
const defaultPause = 100

/** The failure of a commit that gave up waiting for its replicas: a failover may lose it. */
const unknownOutcome = new DatabaseFailure({ kind: "UnknownOutcome", sqlstate: "01000", constraint: undefined })

/** The SQL error in a cause. Also looks in defects: Effect dies if a transaction loses its connection and cannot roll back. */
const sqlErrorIn = ({ reasons }: Cause.Cause<QueryError>) =>
  reasons
    .map((reason) => (reason._tag === "Fail" ? reason.error : reason._tag === "Die" ? reason.defect : undefined))
    .find(SqlError.isSqlError)

/**
 * Makes a function that runs a query, and retries transient failures, such as a change of leader, before `until`
 * (milliseconds of the monotonic clock). Reduces errors to a `DatabaseFailure`, and calls `onFailure` after each failed
 * attempt. Fails with `UnknownOutcome` if `unreplicated`, the number of commits that may not be replicated, grows
 * during the query.
 */
export const retryingWith = (
  unreplicated: () => number,
  onFailure: (failure: DatabaseFailure) => void = () => {},
  pause = defaultPause
) => {
  const attempt = <A>(query: Query<A>, until: () => number, retries: number): Effect.Effect<A, DatabaseFailure> =>
    Effect.suspend(() => {
      const before = unreplicated()
      return Effect.matchCauseEffect(query, {
        onSuccess: (answer) => (unreplicated() === before ? Effect.succeed(answer) : Effect.fail(unknownOutcome)),
        onFailure: (cause) => {
          const error = sqlErrorIn(cause)
          if (error === undefined) return Effect.die(Cause.squash(cause))
          const failure = failureOf(error)
          onFailure(failure)
          const wait = retries === 0 ? 0 : pause
          const mayRetry = failure.isTransient || failure.sqlstate === deadlock
          if (!mayRetry || performance.now() + wait >= until()) return Effect.fail(failure)
          const again = attempt(query, until, retries + 1)
          return wait === 0 ? again : Effect.andThen(Effect.sleep(wait), again)
        }
      })
    })
  return <A>(query: Query<A>, until: () => number) => attempt(query, until, 0)
}
