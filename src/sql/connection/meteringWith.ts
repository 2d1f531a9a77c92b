import { Cause, Effect } from "effect"
import { DatabaseFailure } from "../../port/DatabaseFailure.ts"
import type { LaneMeter } from "../../port/DatabaseMeter.ts"
import type { Operation, Query, retryingWith } from "./Query.ts"

const errorOf = (cause: Cause.Cause<DatabaseFailure>) => {
  const failure = Cause.squash(cause)
  return failure instanceof DatabaseFailure ? failure.kind : "other"
}

/** Times each query of a pool, from the wait for a connection to the end of its last retry. */
export const meteringWith =
  (meter: LaneMeter, retrying: ReturnType<typeof retryingWith>) =>
  <A>(query: Query<A>, until: () => number, operation: Operation): Effect.Effect<A, DatabaseFailure> =>
    Effect.suspend(() => {
      const began = performance.now()
      return Effect.onExit(retrying(query, until), (exit) =>
        Effect.sync(() =>
          meter.ran(
            operation,
            (performance.now() - began) / 1000,
            exit._tag === "Success" ? undefined : errorOf(exit.cause)
          )
        )
      )
    })

/** Runs a query of a pool. */
export type Retrying = ReturnType<typeof meteringWith>
