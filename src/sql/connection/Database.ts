import { PgClient } from "@effect/sql-pg"
import { Context, Duration, Effect, Layer } from "effect"
import { Reactivity } from "effect/reactivity"
import type { DatabaseTarget } from "./DatabaseTarget.ts"
import { makeTypes } from "./pgTypes.ts"
import { type Lane, makeLane } from "./Lane.ts"
import { makeTransport } from "./Transport.ts"

/** How the database is used. */
export interface DatabaseSettings {
  /** Connections for look-ups and gets, and as many again for inserts. */
  readonly poolSize: number
  readonly connectTimeout: Duration.Duration
  /** When PostgreSQL gives a statement up. */
  readonly statementTimeout: Duration.Duration
  /** When the service stops waiting for an answer; longer than the statement time-out. */
  readonly deadline: Duration.Duration
  /** How many statements may wait or run, in either lane, before further ones are refused. */
  readonly queue: number
  /** Whether requests that come at the same time share statements. */
  readonly batching: boolean
  /** The target is a transaction pooler: no prepared statements, no session settings. */
  readonly pooler: boolean
}

/**
 * Reads and writes have lanes of their own, so that a locked table of writes delays no read. What the service does by
 * itself has a connection of its own, and takes no place in a queue from a caller.
 */
export class Database extends Context.Service<
  Database,
  { readonly reads: Lane; readonly writes: Lane; readonly background: Lane }
>()("byok/Database") {}

const sessionOf = ({ pooler, statementTimeout }: DatabaseSettings, session: Record<string, string>) => {
  const milliseconds = String(Duration.toMillis(statementTimeout))
  return pooler
    ? {}
    : {
        startupParameters: {
          ...session,
          statement_timeout: milliseconds,
          lock_timeout: milliseconds,
          idle_in_transaction_session_timeout: milliseconds
        }
      }
}

/** A client whose errors have not been scrubbed: only lanes and migrations may run its statements. */
export const makeClient = (
  { tls, ...target }: DatabaseTarget,
  { connectTimeout, poolSize, pooler }: Pick<DatabaseSettings, "connectTimeout" | "poolSize" | "pooler">,
  options: Pick<PgClient.PgPoolConfig, "startupParameters" | "stream"> = {}
) =>
  PgClient.make({
    ...target,
    ...options,
    ssl: options.stream === undefined ? (tls ?? false) : false,
    applicationName: "byok",
    connectTimeout,
    maxConnections: poolSize,
    prepare: !pooler,
    types: makeTypes()
  })

/** Connects on first use. What `session` sets holds for every connection, but not behind a transaction pooler. */
export const layer = (target: DatabaseTarget, settings: DatabaseSettings, session: Record<string, string> = {}) => {
  const silence = Duration.toMillis(settings.deadline) + 500
  const laneOf = Effect.fnUntraced(function* (settings: DatabaseSettings) {
    let unreplicated = 0
    const stream = makeTransport(target, silence, () => (unreplicated += 1))
    const client = yield* makeClient(target, settings, { ...sessionOf(settings, session), stream })
    return yield* makeLane(client, { ...settings, unreplicated: () => unreplicated })
  })
  const lane = laneOf(settings)
  const background = laneOf({ ...settings, poolSize: 1, batching: false })
  return Layer.effect(Database, Effect.all({ reads: lane, writes: lane, background })).pipe(
    Layer.provide(Reactivity.layer)
  )
}
