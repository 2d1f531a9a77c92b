import { Clock, Effect, Layer, Option, Schedule } from "effect"
import { readDatabaseCaFile } from "./DatabaseCaFile.ts"
import { InvalidSetting, type Settings } from "./Settings.ts"
import * as AccountRepositorySql from "../sql/AccountRepositorySql.ts"
import * as ApiKeysSql from "../sql/ApiKeysSql.ts"
import * as AuditLogSql from "../sql/AuditLogSql.ts"
import * as CredentialRepositorySql from "../sql/CredentialRepositorySql.ts"
import * as Database from "../sql/connection/Database.ts"
import { type DatabaseFailure, failureOf } from "../sql/connection/DatabaseFailure.ts"
import { type DatabaseTarget, InvalidDatabaseUrl, parseDatabaseUrl } from "../sql/connection/DatabaseTarget.ts"
import { acknowledgesEarlyByDefault, durableSession } from "../sql/connection/Durability.ts"
import * as EmbeddedPostgres from "../sql/embedded/EmbeddedPostgres.ts"
import * as KekRegistrySql from "../sql/KekRegistrySql.ts"
import * as KeyUseSql from "../sql/KeyUseSql.ts"
import { migrate } from "../sql/Migrations.ts"
import * as ReceiptsSql from "../sql/ReceiptsSql.ts"
import { mayPass, sentenceOn } from "../sql/connection/connectionError.ts"
import * as WorkspaceResolverSql from "../sql/WorkspaceResolverSql.ts"
import * as WrappedKeysSql from "../sql/WrappedKeysSql.ts"

export { DatabaseFailure } from "../sql/connection/DatabaseFailure.ts"
export type { EmbeddedPostgresError } from "../sql/embedded/EmbeddedPostgresError.ts"

const refuse = (message: string) => new InvalidSetting({ message })

const targetOf = Effect.fnUntraced(function* ({ dataDirectory, databaseCaFile, databaseUrl }: Settings) {
  if (Option.isNone(databaseUrl)) {
    const endpoint = yield* EmbeddedPostgres.start(dataDirectory)
    return { ...endpoint, port: 5432, password: undefined, tls: undefined } satisfies DatabaseTarget
  }
  const ca = Option.isSome(databaseCaFile) ? yield* readDatabaseCaFile(databaseCaFile.value) : undefined
  return yield* Effect.try({
    try: () => parseDatabaseUrl(databaseUrl.value, ca),
    catch: (cause) => refuse(`DATABASE_URL ${cause instanceof InvalidDatabaseUrl ? cause.message : "is not usable"}.`)
  })
})

const nameOf = ({ databaseUrl }: Settings) => (Option.isSome(databaseUrl) ? "DATABASE_URL" : "The embedded database")

/** Seconds that a database which may still be starting gets. */
const startupTimeout = 10

/** Retries what may succeed the next time, and logs a warning if that takes more than a second. */
const whenReachable = Effect.fnUntraced(function* <A>(name: string, open: Effect.Effect<A, DatabaseFailure>) {
  const began = yield* Clock.currentTimeMillis
  const tried = Effect.map(Clock.currentTimeMillis, (now) => (now - began) / 1000)
  let told = false
  const isWorthwhile = Effect.fnUntraced(function* (failure: DatabaseFailure) {
    const seconds = yield* tried
    if (!mayPass(failure) || seconds >= startupTimeout) return false
    if (seconds >= 1 && !told) {
      told = true
      yield* Effect.logWarning(
        `${name} cannot be reached (${failure.sqlstate}); it is tried for ${startupTimeout} seconds`
      )
    }
    return true
  })
  return yield* open.pipe(
    Effect.retry({ while: isWorthwhile, schedule: Schedule.spaced("500 millis") }),
    Effect.catch((failure) =>
      Effect.flatMap(tried, (seconds) => Effect.fail(refuse(sentenceOn(name, failure, Math.round(seconds)))))
    )
  )
})

/** What acknowledged means must not depend on how somebody else has set up the database. */
const sessionFor = (target: DatabaseTarget, { database }: Settings) =>
  Effect.flatMap(acknowledgesEarlyByDefault(target, database), (early) => {
    if (!early) return Effect.succeed({})
    const warning = database.pooler
      ? "synchronous_commit is off behind the pooler: turn it on for the service's role, or a crash of the database loses what was acknowledged"
      : "synchronous_commit is off for the service's role and database: the service turns it on for its own sessions"
    return Effect.as(Effect.logWarning(warning), durableSession)
  })

/** Where the database is, once it has been reached and its schema is up to date. */
export const openDatabase = Effect.fnUntraced(function* (settings: Settings) {
  const target = yield* targetOf(settings)
  const { migrated, session } = yield* whenReachable(
    nameOf(settings),
    Effect.all({ session: sessionFor(target, settings), migrated: migrate(target, settings.database) })
  )
  return { target, migrated, session }
})

const repositories = Layer.mergeAll(
  AccountRepositorySql.layer,
  ApiKeysSql.layer,
  AuditLogSql.layer,
  CredentialRepositorySql.layer,
  KekRegistrySql.layer,
  KeyUseSql.layer,
  ReceiptsSql.layer,
  WorkspaceResolverSql.layer,
  WrappedKeysSql.layer
)

/** Every port that stores something, on PostgreSQL. */
export const layer = (settings: Settings) => {
  const database = Layer.unwrap(
    Effect.map(openDatabase(settings), ({ session, target }) => Database.layer(target, settings.database, session))
  ).pipe(
    Layer.catchTag("SqlError", (error) =>
      Layer.effectContext(Effect.fail(refuse(sentenceOn(nameOf(settings), failureOf(error), 0))))
    )
  )
  return Layer.provideMerge(repositories, database)
}
