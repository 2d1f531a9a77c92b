import { Cause, Effect } from "effect"
import { DatabaseFailure } from "../../port/DatabaseFailure.ts"
import { makeMeter, memoize, timed } from "../../runtime/Meter.ts"
import type { Operation, Query, retryingWith } from "./Query.ts"

/** `background` is for the service's own work, such as health checks and audit checkpoints. */
export type PoolName = "reads" | "writes" | "background"

const errorOf = (cause: Cause.Cause<DatabaseFailure>) => {
  const failure = Cause.squash(cause)
  return failure instanceof DatabaseFailure ? failure.kind : "other"
}

type Retrying = ReturnType<typeof retryingWith>

/** Meters the queries of one pool and the requests that wait for it. */
export const makePoolMeter = (pool: PoolName) =>
  Effect.map(makeMeter, ({ counter, gauge, histogram }) => {
    const attributes = { lane: pool }
    const durationOf = memoize((operation: Operation) =>
      memoize((error: string | undefined) =>
        histogram("db.client.operation.duration", {
          "db.operation.name": operation,
          ...(error === undefined ? {} : { "error.type": error })
        })
      )
    )
    const batchSizeOf = memoize((operation: Operation) =>
      histogram("byok.db.batch.size", { "db.operation.name": operation })
    )
    const queues: Array<() => number> = []
    gauge("byok.db.queue.depth", attributes, () => queues.reduce((depth, read) => depth + read(), 0))
    return {
      /** Times each query, from the wait for a connection to the end of its last retry. */
      timing:
        (retrying: Retrying) =>
        <A>(query: Query<A>, until: () => number, operation: Operation) =>
          timed(retrying(query, until), (seconds, exit) =>
            durationOf(operation)(exit._tag === "Success" ? undefined : errorOf(exit.cause))(seconds)
          ),
      /** Records how many requests a statement answers. */
      batched: (operation: Operation, size: number) => batchSizeOf(operation)(size),
      /** Records how many seconds a request waited for its batch to start. */
      waited: histogram("byok.db.queue.wait.duration", attributes),
      /** Counts a request refused because the queue was full. */
      refused: counter("byok.db.refusals", attributes),
      /** Adds a queue whose current length `read` returns. */
      addQueue: (read: () => number) => void queues.push(read)
    }
  })

export type PoolMeter = Effect.Success<ReturnType<typeof makePoolMeter>>
