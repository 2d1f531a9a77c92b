import { Cause, Effect, Layer } from "effect"
import { Keyring } from "../crypto/keyring/Keyring.ts"
import { countLimit, formatCount } from "../port/AuditLog.ts"
import { KekRegistry } from "../port/KekRegistry.ts"
import { Readiness } from "../port/Readiness.ts"
import { Database } from "../sql/connection/Database.ts"
import { failureOf } from "../sql/connection/DatabaseErrors.ts"
import { sessionState } from "../sql/schema/inspectSession.ts"
import { lockNotAvailable, readSchemaState, type SchemaState, withLockTimeout } from "../sql/schema/Migrations.ts"

/** What the state of the schema keeps the service from serving. */
const schemaProblems: Readonly<Record<SchemaState, ReadonlyArray<string>>> = {
  behind: ["the database lacks migrations that this version needs"],
  foreign: ["another build of this version migrated the database"],
  incomplete: ["tables are missing from the database"],
  current: [],
  newer: []
}

/** How long to wait for a lock on the table of migrations, in milliseconds. */
const schemaLockTimeout = 100

/** Logs the cause in full, and says only that the check failed. */
const checkFailed = (cause: Cause.Cause<unknown>) =>
  Effect.as(Effect.logError("Readiness could not be checked", cause), ["the check failed"])

/**
 * Ready if the database answers, is writable, commits durably and has this build's migrations, and the primary key
 * of the keyring may seal. Only warns of a full disk, and of credentials whose key is missing: the service can
 * serve everything else.
 */
export const layer = Layer.effect(
  Readiness,
  Effect.gen(function* () {
    const { reads, writes } = yield* Database
    const { current } = yield* Keyring
    const registry = yield* KekRegistry
    const kekIds = Effect.sync(() => Array.from(current().byId.keys()))

    /** The state read last, reported while the table is locked. Startup has checked it. */
    let lastState: SchemaState = "current"
    const readSchema = Effect.map(
      withLockTimeout(reads.sql, schemaLockTimeout)(readSchemaState(reads.sql)),
      (state) => (lastState = state)
    ).pipe(
      Effect.catchIf(
        (error) => error._tag === "SqlError" && failureOf(error).sqlstate === lockNotAvailable,
        () => Effect.succeed(lastState)
      )
    )
    const schema = Effect.map(reads.probe(readSchema, "schema.version"), (state) => schemaProblems[state])
    /** Uses the connections for writes, which may lead to another server than those for reads. */
    const session = Effect.map(
      writes.probe(sessionState(writes.sql), "server.session"),
      ({ acknowledgesEarly, readOnly }) => [
        ...(readOnly ? ["the database is read-only: nothing can be stored"] : []),
        ...(acknowledgesEarly ? ["synchronous_commit is off: a database crash would lose acknowledged writes"] : [])
      ]
    )
    const sealing = Effect.gen(function* () {
      const { kek_id } = current().primary
      switch (yield* registry.sealPermission(kek_id, yield* kekIds)) {
        case "retired":
          return [`key ${kek_id} is retired but still first in the keyring: nothing can be sealed`]
        case "foreign":
          return [`neither key ${kek_id} nor another key of this keyring has ever sealed: nothing can be sealed`]
        case "seals":
          return []
      }
    })
    const missing = Effect.map(
      Effect.flatMap(kekIds, (kek_ids) => registry.countExcept(kek_ids, countLimit + 1)),
      (keys) =>
        keys.map(
          ({ credentials, kek_id }) =>
            `key ${kek_id} is missing from the keyring; credentials that cannot be opened: ${formatCount(credentials)}`
        )
    )
    /** Only a warning: reads go on, and all instances have the same disk. */
    const fullDisk = Effect.sync(() => (writes.metFullDisk() ? ["the disk of the database is full"] : []))
    return {
      problems: Effect.map(Effect.all([schema, session, sealing]), (sentences) => sentences.flat()).pipe(
        Effect.catchTag("DatabaseFailure", ({ message }) =>
          Effect.succeed([`the database does not answer: ${message}`])
        ),
        Effect.catchCause(checkFailed)
      ),
      warnings: Effect.map(Effect.all([Effect.catchCause(missing, () => Effect.succeed([])), fullDisk]), (sentences) =>
        sentences.flat()
      )
    }
  })
)
