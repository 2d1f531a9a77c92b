import { PgClient, PgTypes } from "@effect/sql-pg"
import { Context, Duration, Effect, Layer, Result } from "effect"
import { Reactivity } from "effect/reactivity"
import { queueLimits } from "../../runtime/FairQueue.ts"
import type { DatabaseTarget } from "./DatabaseTarget.ts"
import { type ConnectionPool, makeConnectionPool } from "./ConnectionPool.ts"
import { makeTransport } from "./Transport.ts"
import { makePoolMeter, type PoolName } from "./PoolMeter.ts"

export interface DatabaseSettings {
  /** Connections for reads, and as many again for writes; background work has one. */
  readonly poolSize: number
  readonly connectTimeout: Duration.Duration
  /** After how long PostgreSQL cancels a statement. */
  readonly statementTimeout: Duration.Duration
  /** After how long the service stops waiting for an answer. Must be longer than `statementTimeout`. */
  readonly deadline: Duration.Duration
  /** The age, within a tenth, at which the next use replaces a connection, so that load moves after a failover. */
  readonly maxAge: Duration.Duration
  /** DATABASE_QUEUE, from which `queueLimits` derives the limits of all queues. */
  readonly queue: number
  /** Whether the target is a transaction pooler, which allows no prepared statements and no session settings. */
  readonly pooler: boolean
}

/** Separate pools, so that a lock that stalls writes delays no reads. */
export class Database extends Context.Service<
  Database,
  { readonly reads: ConnectionPool; readonly writes: ConnectionPool; readonly background: ConnectionPool }
>()("byok/Database") {}

const parametersOf = ({ statementTimeout }: DatabaseSettings) => {
  const milliseconds = String(Duration.toMillis(statementTimeout))
  return {
    statement_timeout: milliseconds,
    lock_timeout: milliseconds,
    idle_in_transaction_session_timeout: milliseconds,
    // Compiling takes longer than running any of the service's statements.
    jit: "off"
  }
}

/** A codec whose `read` gets the bytes of one value in a buffer. */
const codecOf = <A>(
  encode: (value: A) => Uint8Array,
  read: (bytes: Uint8Array, offset: number, size: number) => A
): PgTypes.Codec<A> => ({
  encode: (value) => Result.succeed(encode(value)),
  decode: (bytes) => Result.succeed(read(bytes, 0, bytes.length)),
  read: (bytes, offset, size) => Result.succeed(read(bytes, offset, size))
})

const text = codecOf<string>(
  (text) => Buffer.from(text),
  (bytes, offset, size) => Buffer.from(bytes.buffer, bytes.byteOffset + offset, size).toString()
)

const bytea = codecOf<Uint8Array>(
  (bytes) => bytes,
  (bytes, offset, size) => new Uint8Array(bytes.subarray(offset, offset + size))
)

/** Reads an int8 as a number if a number holds it exactly, as it does each counter; else as a BigInt. */
const int8 = codecOf<number | bigint>(
  (value) => {
    const bytes = Buffer.alloc(8)
    bytes.writeBigInt64BE(BigInt(value))
    return bytes
  },
  (bytes, offset) => {
    const value = new DataView(bytes.buffer, bytes.byteOffset + offset).getBigInt64(0)
    return Number.isSafeInteger(Number(value)) ? Number(value) : value
  }
)

/**
 * The driver's types with other codecs for text, because the driver's strips a leading byte order mark from some
 * strings; for bytea, because the driver's returns a view, which would keep a whole buffer of received rows in memory;
 * and for int8, because JSON has no BigInt.
 */
const pgTypes = (): PgTypes.Registry => {
  const types = PgTypes.makeRegistry()
  types.register(PgTypes.OID.text, text)
  types.register(PgTypes.OID.bytea, bytea)
  types.register(PgTypes.OID.int8, int8)
  return types
}

/** The name of every session in PostgreSQL. */
export const applicationName = "byok"

export type ClientSettings = Pick<DatabaseSettings, "connectTimeout" | "pooler">

/**
 * A client, by default of one connection. Its errors may quote stored values: callers reduce them with `failureOf`.
 * `startupParameters` have no effect behind a transaction pooler.
 */
export const makeClient = (
  { tls, ...target }: DatabaseTarget,
  { connectTimeout, pooler }: ClientSettings,
  {
    startupParameters = {},
    ...options
  }: Pick<PgClient.PgPoolConfig, "connectionTTL" | "maxConnections" | "startupParameters" | "stream"> = {}
) =>
  PgClient.make({
    ...target,
    maxConnections: 1,
    ...options,
    // `makeTransport` has set up TLS on its stream.
    ssl: options.stream === undefined ? (tls ?? false) : false,
    applicationName,
    connectTimeout,
    prepare: !pooler,
    startupParameters: pooler ? {} : startupParameters,
    types: pgTypes()
  }).pipe(Effect.provide(Reactivity.layer))

/**
 * The pools, which connect on first use. `session` sets parameters on every connection, except behind a transaction
 * pooler. `distributed`: whether Citus spreads rows over nodes.
 */
export const layer = (
  target: DatabaseTarget,
  settings: DatabaseSettings,
  session: Record<string, string> = {},
  distributed = false
) => {
  // PostgreSQL cancels a statement before the deadline, so a connection that is silent for longer is dead.
  const lifetime = { silence: Duration.toMillis(settings.deadline) + 500, pooler: settings.pooler }
  const poolOf = Effect.fnUntraced(function* (name: PoolName, settings: DatabaseSettings, reserved: number) {
    /** Number of commits that may not have reached the synchronous replicas. Queries during which it grows fail. */
    let unreplicated = 0
    const onUnreplicated = () => void (unreplicated += 1)
    const stream = makeTransport(target, lifetime, onUnreplicated)
    // Random, so that the pools of several instances do not reconnect at the same time.
    const connectionTTL = Duration.times(settings.maxAge, 0.9 + 0.2 * Math.random())
    const startupParameters = { ...session, ...parametersOf(settings) }
    const options = { maxConnections: settings.poolSize, startupParameters, stream, connectionTTL }
    const client = yield* makeClient(target, settings, options)
    const meter = yield* makePoolMeter(name)
    return yield* makeConnectionPool(client, {
      ...settings,
      distributed,
      reserved,
      maxWaiting: queueLimits(settings.queue).statements,
      unreplicated: () => unreplicated,
      meter
    })
  })
  const pools = {
    // Keeps connections for batched look-ups, as of API keys, and for plans: long reads could occupy all others.
    reads: poolOf("reads", settings, 2),
    writes: poolOf("writes", settings, 0),
    background: poolOf("background", { ...settings, poolSize: 1 }, 0)
  }
  return Layer.effect(Database, Effect.all(pools))
}
