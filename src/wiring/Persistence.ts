import { existsSync } from "node:fs"
import { join } from "node:path"
import { Clock, Effect, Layer, Option, Schedule } from "effect"
import { readDatabaseCaFile } from "./Certificates.ts"
import { refuse } from "./Environment.ts"
import type { Settings } from "./Settings.ts"
import * as AccountRepositoryLive from "../sql/accounts/AccountRepositoryLive.ts"
import * as ApiKeysLive from "../sql/accounts/ApiKeysLive.ts"
import * as AuditLogLive from "../sql/audit/AuditLogLive.ts"
import * as EventCursorLive from "../sql/audit/EventCursorLive.ts"
import * as CredentialPoolsLive from "../sql/routing/CredentialPoolsLive.ts"
import * as CredentialRepositoryLive from "../sql/credentials/CredentialRepositoryLive.ts"
import * as CredentialUseLive from "../sql/routing/CredentialUseLive.ts"
import { PoolLimits } from "../port/CredentialRepository.ts"
import * as Database from "../sql/connection/Database.ts"
import type { DatabaseFailure } from "../port/DatabaseFailure.ts"
import { explainFailure, failureOf } from "../sql/connection/DatabaseErrors.ts"
import { type DatabaseTarget, InvalidDatabaseUrl, parseDatabaseUrl } from "../sql/connection/DatabaseTarget.ts"
import { durableSession, inspectSession, type Rights, servingRights } from "../sql/schema/inspectSession.ts"
import { distribute, restoreForeignKeys } from "../sql/schema/distribute.ts"
import * as EmbeddedPostgres from "../sql/embedded/EmbeddedPostgres.ts"
import * as KekRegistryLive from "../sql/keyring/KekRegistryLive.ts"
import * as LinkRepositoryLive from "../sql/links/LinkRepositoryLive.ts"
import * as LeakedKeysLive from "../sql/credentials/LeakedKeysLive.ts"
import { type MigrationMode, openSchema, type SchemaState } from "../sql/schema/Migrations.ts"
import * as ParkingsLive from "../sql/routing/ParkingsLive.ts"
import * as IdempotencyRecordsLive from "../sql/credentials/IdempotencyRecordsLive.ts"

export type { EmbeddedPostgresError } from "../sql/embedded/PostgresBinaries.ts"

/** The database of DATABASE_URL, or the embedded one; starts the latter unless it runs. */
const targetOf = Effect.fnUntraced(function* (
  { dataDirectory, databaseCaFile, databaseUrl }: Settings,
  user: EmbeddedPostgres.User
) {
  if (Option.isNone(databaseUrl)) {
    if (user === "command" && !existsSync(join(dataDirectory, "postgres"))) {
      return yield* refuse(
        "BYOK_DATA_DIR holds no database: start `byok serve`, which creates it, or set DATABASE_URL."
      )
    }
    const endpoint = yield* EmbeddedPostgres.start(dataDirectory, user)
    return { ...endpoint, port: 5432, tls: undefined } satisfies DatabaseTarget
  }
  const ca = Option.isSome(databaseCaFile) ? yield* readDatabaseCaFile(databaseCaFile.value) : undefined
  return yield* Effect.try({
    try: () => parseDatabaseUrl(databaseUrl.value, ca),
    catch: (cause) => (cause instanceof InvalidDatabaseUrl ? cause.message : "is not usable")
  }).pipe(Effect.catch((fault) => refuse(`DATABASE_URL ${fault}.`)))
})

const nameOf = ({ databaseUrl }: Settings) => (Option.isSome(databaseUrl) ? "DATABASE_URL" : "The embedded database")

/**
 * How many seconds to wait for a database that may be starting: few for an unknown host name, which may be mistyped,
 * and none for a command if nothing listens.
 */
const startupTimeout = ({ sqlstate }: DatabaseFailure, user: EmbeddedPostgres.User) =>
  sqlstate === "ENOTFOUND" ? 2 : sqlstate === "ECONNREFUSED" && user === "command" ? 0 : 10

/** Runs `open`. Retries transient failures until `startupTimeout`, with one warning after a second; refuses others. */
const whenReachable = Effect.fnUntraced(function* <A>(
  settings: Settings,
  user: EmbeddedPostgres.User,
  open: Effect.Effect<A, DatabaseFailure>
) {
  const name = nameOf(settings)
  const began = yield* Clock.currentTimeMillis
  const elapsed = Effect.map(Clock.currentTimeMillis, (now) => (now - began) / 1000)
  let warned = false
  const shouldRetry = Effect.fnUntraced(function* (failure: DatabaseFailure) {
    const seconds = yield* elapsed
    if (!failure.isTransient || seconds >= startupTimeout(failure, user)) return false
    if (seconds >= 1 && !warned) {
      warned = true
      yield* Effect.logWarning(
        `${name} cannot be reached (${failure.sqlstate}); retrying for up to ${startupTimeout(failure, user)} seconds`
      )
    }
    return true
  })
  return yield* open.pipe(
    Effect.retry({ while: shouldRetry, schedule: Schedule.spaced("500 millis") }),
    Effect.catch((failure) =>
      Effect.flatMap(elapsed, (seconds) => refuse(explainFailure(name, failure, Math.round(seconds))))
    )
  )
})

/** Warns if `synchronous_commit` is off. Returns settings that turn it on for sessions, except behind a pooler. */
const sessionFor = (acknowledgesEarly: boolean, { database }: Settings) => {
  if (!acknowledgesEarly) return Effect.succeed({})
  const warning = database.pooler
    ? "synchronous_commit is off behind the pooler: turn it on for the service's role, or a database crash loses acknowledged writes"
    : "synchronous_commit is off for the service's role and database: the service turns it on for its own sessions"
  return Effect.as(Effect.logWarning(warning), durableSession)
}

/** The sentences that refuse an unfit schema. */
const unfitSchema = {
  behind: "the schema is behind this version, and BYOK_MIGRATE is check: run `byok migrate`.",
  foreign: "the schema is that of another build of this version: use the build that migrated it, or an empty database.",
  incomplete: "tables that byok created are missing: restore a complete backup, or use an empty database."
}

/** Refuses an unfit schema. Commands also refuse a newer one; `serve` accepts it, to allow a rollback. */
const checkSchema = (name: string, state: SchemaState, user: EmbeddedPostgres.User) => {
  if (state === "current") return Effect.void
  if (state !== "newer") return refuse(`${name}: ${unfitSchema[state]}`)
  const newer = `${name}: the schema is newer than this version of byok`
  return user === "service" ? Effect.logWarning(newer) : refuse(`${newer}: use the version that migrated it.`)
}

/** Waits for the database, checks the rights of the role that connects, and checks or migrates the schema. */
const connect = Effect.fnUntraced(function* (
  settings: Settings,
  mode: MigrationMode,
  user: EmbeddedPostgres.User,
  rights: Rights = {}
) {
  const target = yield* targetOf(settings, user)
  const name = nameOf(settings)
  const inspected = inspectSession(target, settings.database, rights)
  const { acknowledgesEarly, distribution, missing } = yield* whenReachable(settings, user, inspected)
  if (missing.length > 0) {
    const lacking = missing.map(({ kinds, name }) => `${kinds} on ${name}`).join("; ")
    return yield* refuse(`${name}: the user lacks rights that docs/operating.md says to grant: ${lacking}.`)
  }
  const session = yield* sessionFor(acknowledgesEarly, settings)
  const schema = yield* whenReachable(settings, user, openSchema(target, settings.database, mode))
  return { name, target, session, distribution, ...schema }
})

/** Waits for the database and may migrate it. Refuses an unfit schema, unfinished distribution or lost foreign keys. */
export const openDatabase = Effect.fnUntraced(function* (
  settings: Settings,
  user: EmbeddedPostgres.User = "service",
  rights: Rights = servingRights
) {
  const opened = yield* connect(settings, settings.migrate === "auto" ? "migrate" : "check", user, rights)
  yield* checkSchema(opened.name, opened.state, user)
  if (opened.distribution === "partial") {
    return yield* refuse(
      `${opened.name}: distributing its tables was interrupted: run \`byok migrate --distribute\` again.`
    )
  }
  if (opened.distribution === "keys_missing") {
    return yield* refuse(
      `${opened.name}: foreign keys are missing, as after the way back from Citus: run \`byok migrate\`.`
    )
  }
  return opened
})

/**
 * Migrates the database. Then distributes its accounts over the nodes of Citus if `distribute` is set, else restores
 * missing foreign keys.
 */
export const migrateDatabase = Effect.fnUntraced(function* (
  settings: Settings,
  { distribute: shouldDistribute }: { readonly distribute: boolean }
) {
  const { name, state, target, ...schema } = yield* connect(settings, "migrate", "command")
  if (state !== "newer") yield* checkSchema(name, state, "command")
  if (!shouldDistribute) {
    const restore = whenReachable(settings, "command", restoreForeignKeys(target, settings.database))
    const restored = schema.distribution === "keys_missing" ? yield* restore : []
    return { ...schema, distributed: [], restored }
  }
  const { distributed, lacks } = yield* whenReachable(settings, "command", distribute(target, settings.database))
  return lacks === undefined
    ? { ...schema, distributed, restored: [] }
    : yield* refuse(`${name} cannot be distributed: ${lacks}; see docs/scaling.md.`)
})

const repositories = Layer.mergeAll(
  AccountRepositoryLive.layer,
  ApiKeysLive.layer,
  AuditLogLive.layer,
  EventCursorLive.layer,
  CredentialPoolsLive.layer,
  CredentialRepositoryLive.layer,
  CredentialUseLive.layer,
  KekRegistryLive.layer,
  LeakedKeysLive.layer,
  LinkRepositoryLive.layer,
  ParkingsLive.layer,
  IdempotencyRecordsLive.layer,
  AccountRepositoryLive.workspaceResolver
)

/** Implements every port that stores data on PostgreSQL. */
export const layer = (settings: Settings, user: EmbeddedPostgres.User = "service", rights: Rights = servingRights) => {
  const database = Layer.unwrap(
    Effect.map(openDatabase(settings, user, rights), ({ distribution, session, target }) =>
      Database.layer(target, settings.database, session, distribution === "distributed")
    )
  ).pipe(
    Layer.catchTag("SqlError", (error) =>
      Layer.effectContext(refuse(explainFailure(nameOf(settings), failureOf(error), 0)))
    )
  )
  const limited = Layer.provideMerge(repositories, Layer.succeed(PoolLimits, settings.poolLimits))
  return Layer.provideMerge(limited, database)
}
