import { type Duration, Effect, Exit, Fiber } from "effect"
import type { SqlClient } from "effect/sql"
import { ServiceUnavailable } from "../../domain/Errors.ts"
import { type Gather, gatherWith } from "./Batching.ts"
import { DatabaseFailure, failureOf } from "./DatabaseFailure.ts"
import type { Query, QueryError } from "./Query.ts"

/** A pool of connections and the two ways to use it. */
export interface Lane {
  readonly sql: SqlClient.SqlClient
  /**
   * Runs a query and answers by the deadline. A caller that leaves or times out cancels nothing. Failures die as a
   * `DatabaseFailure`.
   */
  readonly ask: <A>(query: Query<A>) => Effect.Effect<A, ServiceUnavailable>
  /** Runs a query that many callers make at once: they may share a statement, but not each other's failures. */
  readonly gather: Gather
}

export interface LaneSettings {
  readonly deadline: Duration.Duration
  readonly queue: number
  readonly batching: boolean
  /** How many commits on this lane were reported as possibly not replicated. */
  readonly unreplicated: () => number
}

const isConnectionLost = (error: QueryError) => error._tag === "SqlError" && error.reason._tag === "ConnectionError"

const timedOut = new DatabaseFailure({ kind: "Deadline", sqlstate: undefined, constraint: undefined })

const unknownOutcome = new DatabaseFailure({ kind: "UnknownOutcome", sqlstate: "01000", constraint: undefined })

/**
 * Retries once on another connection if one was lost, reduces errors to a `DatabaseFailure`, and acknowledges nothing
 * if a commit was reported as possibly not replicated meanwhile.
 */
const scrubbedWith =
  (unreplicated: () => number) =>
  <A>(query: Query<A>): Effect.Effect<A, DatabaseFailure> =>
    Effect.suspend(() => {
      const before = unreplicated()
      return query.pipe(
        Effect.retry({ times: 1, while: isConnectionLost }),
        Effect.catch((error) => (error._tag === "SqlError" ? Effect.fail(failureOf(error)) : Effect.die(error))),
        Effect.filterOrFail(
          () => unreplicated() === before,
          () => unknownOutcome
        )
      )
    })

export const makeLane = Effect.fnUntraced(function* (sql: SqlClient.SqlClient, settings: LaneSettings) {
  const scrubbed = scrubbedWith(settings.unreplicated)
  let waiting = 0
  const ask: Lane["ask"] = (query) =>
    Effect.suspend(() => {
      if (waiting >= settings.queue) return Effect.fail(new ServiceUnavailable())
      waiting += 1
      const detached = Effect.ensuring(
        Effect.orDie(scrubbed(query)),
        Effect.sync(() => (waiting -= 1))
      )
      return Effect.flatMap(Effect.forkDetach(detached), (fiber) =>
        Effect.timeoutOrElse(Fiber.join(fiber), { duration: settings.deadline, orElse: () => Effect.die(timedOut) })
      )
    })
  const one: Gather =
    ({ one }) =>
    (request) =>
      ask(one(request))
  const gather = settings.batching ? yield* gatherWith({ ...settings, scrubbed, timedOut: Exit.die(timedOut) }) : one
  return { sql, ask, gather } satisfies Lane
})
