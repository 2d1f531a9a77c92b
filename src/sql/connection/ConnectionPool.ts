import { Duration, Effect, Exit, Fiber, References, Semaphore } from "effect"
import type { SqlClient } from "effect/sql"
import { ServiceUnavailable } from "../../domain/Errors.ts"
import { timeLeft } from "../../runtime/Deadline.ts"
import { type Batch, makeBatching } from "./Batching.ts"
import { DatabaseFailure } from "../../port/DatabaseFailure.ts"
import { beginSpan, endSpan } from "./OperationSpan.ts"
import type { PoolMeter } from "./PoolMeter.ts"
import { type Operation, type Query, retryingWith } from "./Query.ts"

/** A pool of connections and the two ways to use it. */
export interface ConnectionPool {
  readonly sql: SqlClient.SqlClient
  /** Citus spreads the rows of tenants over nodes by account: each statement of a request must name one as a value. */
  readonly distributed: boolean
  /** Answers by the deadline of request or pool; who leaves cancels nothing. Dies with a `DatabaseFailure`. */
  readonly ask: <A>(query: Query<A>, operation: Operation) => Effect.Effect<A, ServiceUnavailable>
  /** Runs a query however much is queued, and takes no place in the queue. For the service's own occasional questions. */
  readonly probe: <A>(query: Query<A>, operation: Operation) => Effect.Effect<A>
  /** Runs a query that many callers make at once: they may share a statement, but not each other's failures. */
  readonly batch: Batch
  /** Runs a statement that takes a lock; requests of batches that take it too wait meanwhile. */
  readonly holding: <A, E, R>(lock: string, statement: Effect.Effect<A, E, R>) => Effect.Effect<A, E, R>
  /** Whether a statement failed in the last minute because the disk of the database is full. */
  readonly metFullDisk: () => boolean
}

export interface PoolSettings {
  readonly deadline: Duration.Duration
  readonly queue: number
  readonly poolSize: number
  /** How many connections only `batch` and `probe` use, as far as the pool has others. */
  readonly reserved: number
  readonly batching: boolean
  readonly distributed: boolean
  /** How many commits on this pool were reported as possibly not replicated. */
  readonly unreplicated: () => number
  readonly meter: PoolMeter
}

/** SQLSTATE of a statement for which the disk has no room. */
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
  const unreserved = Semaphore.makeUnsafe(Math.max(1, settings.poolSize - settings.reserved))
  /** A node of Citus that is down must not keep the connections busy that serve the accounts of others. */
  const pause = settings.distributed ? 1000 : undefined
  /** A query is sent only if its deadline has not passed by the time it has a connection. */
  const retryingIn = (within: <A>(query: Query<A>) => Query<A>) =>
    meter.timing((query, until) => {
      const inTime = Effect.suspend(() => (performance.now() < until() ? query : Effect.die(timedOut)))
      return retryingWith(settings.unreplicated, onFailure, pause)(within(connections.withPermit(inTime)), until)
    })
  const retrying = retryingIn((query) => query)
  const retryingUnreserved = retryingIn((query) => unreserved.withPermit(query))
  const longest = Duration.toMillis(settings.deadline)
  let waiting = 0
  meter.queue(() => waiting)

  /** Runs a query detached from its caller. If it is `queued`, it keeps its place until it has ended. */
  const run = <A>(query: Query<A>, operation: Operation, retry: typeof retrying, queued = true) => {
    const asked = Effect.flatMap(timeLeft(longest), (duration) => {
      if (queued && waiting >= settings.queue) {
        meter.refused()
        return Effect.fail(new ServiceUnavailable())
      }
      if (duration === 0) return Effect.die(timedOut)
      const until = performance.now() + duration
      const places = queued ? 1 : 0
      waiting += places
      // The spans that the client makes of statements are named after the database: those of operations stand for them.
      const detached = Effect.provideService(
        Effect.ensuring(
          Effect.orDie(retry(query, () => until, operation)),
          Effect.sync(() => (waiting -= places))
        ),
        References.MinimumTraceLevel,
        "None"
      )
      return Effect.flatMap(Effect.forkDetach(detached), (fiber) =>
        Effect.timeoutOrElse(Fiber.join(fiber), { duration, orElse: () => Effect.die(timedOut) })
      )
    })
    return Effect.withFiber((fiber): Effect.Effect<A, ServiceUnavailable> => {
      const span = beginSpan(fiber, operation, "client")
      return span === undefined ? asked : Effect.onExit(asked, (exit) => Effect.sync(() => endSpan(span, exit)))
    })
  }
  const one: Batch =
    ({ one, operation }) =>
    (request) =>
      run(one(request), operation, retrying)
  const { batching, distributed } = settings
  return {
    sql,
    distributed,
    metFullDisk,
    ask: (query, operation) => run(query, operation, retryingUnreserved),
    probe: (query, operation) => Effect.orDie(run(query, operation, retrying, false)),
    ...(batching && !distributed
      ? yield* makeBatching({ ...settings, retrying, timedOut: Exit.die(timedOut) })
      : { batch: one, holding: (_lock, statement) => statement })
  } satisfies ConnectionPool
})
