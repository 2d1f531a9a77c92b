import { Duration, Effect, Exit, Fiber, References, Semaphore } from "effect"
import type { SqlClient } from "effect/sql"
import { ServiceUnavailable } from "../../domain/Errors.ts"
import { CurrentDeadline, timeLeft } from "../../runtime/Deadline.ts"
import { makeRequestQueue } from "../../runtime/FairQueue.ts"
import { onEnd } from "../../runtime/onEnd.ts"
import { type Batch, makeBatching } from "./Batching.ts"
import { type Answer, DatabaseFailure } from "../../port/DatabaseFailure.ts"
import { beginSpan, endSpan } from "./OperationSpan.ts"
import type { PoolMeter } from "./PoolMeter.ts"
import { type Operation, type Query, type QueryError, retryingWith } from "./Query.ts"

export interface ConnectionPool {
  readonly sql: SqlClient.SqlClient
  /** Whether Citus spreads rows over nodes by account; a request's statements must then name an account as a value. */
  readonly distributed: boolean
  /**
   * Runs a query. Fails if the queue is full, or with a `DatabaseFailure`, also at the request's or pool's deadline.
   * Interrupting a request cancels its query if that has no connection yet; otherwise, the request ends with the query,
   * because it holds memory for the answer. Accounts have connections in rotation, and none has more than are free;
   * `account_id` is left out for queries of no account.
   */
  readonly ask: <A>(query: Query<A>, operation: Operation, account_id?: string) => Answer<A>
  /** Runs a query for which a plan waits, as `ask` does, but also on connections that are kept for such queries. */
  readonly askForPlan: ConnectionPool["ask"]
  /** Runs a query however full the queue is, without a place in it. For occasional queries of the service itself. */
  readonly probe: <A>(query: Query<A>, operation: Operation) => Effect.Effect<A, DatabaseFailure>
  /** Makes a look-up for many concurrent callers. With Citus, each has its own statement, else they share some. */
  readonly batch: Batch
  /** Whether a statement failed in the last minute because the disk of the database is full. */
  readonly metFullDisk: () => boolean
}

export interface PoolSettings {
  readonly deadline: Duration.Duration
  /** How many queries may wait for an answer, and as many requests in batches; further ones are refused. */
  readonly maxWaiting: number
  readonly poolSize: number
  /** How many connections only `batch` and `probe` use. Of the others, as many are kept for `askForPlan`. */
  readonly reserved: number
  readonly distributed: boolean
  /** How many commits on this pool were reported as possibly not replicated. */
  readonly unreplicated: () => number
  readonly meter: PoolMeter
}

/** SQLSTATE of a full disk. */
const diskFull = "53100"

const timedOut = new DatabaseFailure({ kind: "Deadline", sqlstate: undefined, constraint: undefined })

export const makeConnectionPool = Effect.fnUntraced(function* (sql: SqlClient.SqlClient, settings: PoolSettings) {
  const { meter } = settings
  let fullDiskAt = Number.NEGATIVE_INFINITY
  const onFailure = ({ sqlstate }: DatabaseFailure) => {
    if (sqlstate === diskFull) fullDiskAt = performance.now()
  }
  const metFullDisk = () => performance.now() - fullDiskAt < 60_000
  const connections = Semaphore.makeUnsafe(settings.poolSize)
  const shared = Math.max(1, settings.poolSize - settings.reserved)
  const unkept = Math.max(1, shared - settings.reserved)
  /** Queries that wait for their account's turn: all, and those that may not have the connections kept for plans. */
  const all = makeRequestQueue({ inProgress: shared, waiting: Number.POSITIVE_INFINITY })
  const others = makeRequestQueue({ inProgress: unkept, waiting: Number.POSITIVE_INFINITY })
  const orTimedOut = <A>(turn: Effect.Effect<A, QueryError | ServiceUnavailable>): Query<A> =>
    Effect.catchTag(turn, "ServiceUnavailable", () => Effect.fail(timedOut))
  /** A longer pause with Citus, so that retries for a node that is down leave connections to the other nodes. */
  const pause = settings.distributed ? 1000 : undefined
  const runWithRetries = retryingWith(settings.unreplicated, onFailure, pause)
  /**
   * Makes a function that runs a query with retries. Sends it only if its deadline has not passed once it has a
   * connection. `limit` may delay it, to bound how many connections such queries use.
   */
  const makeRetrying = (limit: <A>(query: Query<A>) => Query<A>) =>
    meter.timing((query, until) => {
      const unlessLate = Effect.suspend(() => (performance.now() < until() ? query : Effect.fail(timedOut)))
      return runWithRetries(limit(connections.withPermit(Effect.uninterruptible(unlessLate))), until)
    })
  const retrying = makeRetrying((query) => query)
  const longest = Duration.toMillis(settings.deadline)
  let waiting = 0
  meter.addQueue(() => waiting)

  /** Runs a query detached from its caller. If `queued`, the query has a place in the queue until its end. */
  const run = <A>(query: Query<A>, operation: Operation, retry: typeof retrying, queued = true) => {
    const answer = Effect.flatMap(timeLeft(longest), (duration): Answer<A> => {
      if (queued && waiting >= settings.maxWaiting) {
        meter.refused()
        return Effect.fail(new ServiceUnavailable())
      }
      if (duration === 0) return Effect.fail(timedOut)
      const until = performance.now() + duration
      const places = queued ? 1 : 0
      // Suppresses the client's spans of statements, which the spans of operations replace.
      const detached = Effect.provideService(
        Effect.acquireUseRelease(
          Effect.sync(() => (waiting += places)),
          () => retry(query, () => until, operation),
          () => Effect.sync(() => (waiting -= places))
        ),
        References.MinimumTraceLevel,
        "None"
      )
      return Effect.uninterruptibleMask((restore) =>
        Effect.flatMap(Effect.forkDetach(detached, { startImmediately: true }), (fiber) => {
          const answerInTime = Effect.timeoutOrElse(Fiber.join(fiber), {
            duration,
            orElse: () => Effect.fail(timedOut)
          })
          // Outside of requests, nobody holds memory for the answer, and the query runs on.
          const endWithQuery = Effect.flatMap(CurrentDeadline, (deadline) =>
            deadline === undefined ? Effect.void : Fiber.interrupt(fiber)
          )
          return Effect.onInterrupt(restore(answerInTime), () => endWithQuery)
        })
      )
    })
    return Effect.withFiber((fiber): Answer<A> => {
      const span = beginSpan(fiber, operation, "client")
      return span === undefined ? answer : onEnd(answer, (exit) => endSpan(span, exit))
    })
  }
  const separately: Batch =
    ({ one, operation }) =>
    (request) =>
      run(one(request), operation, retrying)
  const { distributed } = settings
  return {
    sql,
    distributed,
    metFullDisk,
    ask: (query, operation, account_id = "") => {
      const inTurn = <A>(query: Query<A>) => orTimedOut(others(account_id, all(account_id, query)))
      return run(query, operation, makeRetrying(inTurn))
    },
    askForPlan: (query, operation, account_id = "") => {
      const inTurn = <A>(query: Query<A>) => orTimedOut(all(account_id, query))
      return run(query, operation, makeRetrying(inTurn))
    },
    probe: (query, operation) => run(query, operation, retrying, false) as Effect.Effect<never, DatabaseFailure>,
    batch: distributed ? separately : yield* makeBatching({ ...settings, retrying, timedOut: Exit.fail(timedOut) })
  } satisfies ConnectionPool
})
