import { Cause, ConfigProvider, Context, Effect, Exit, Layer, Redacted, Schema } from "effect"
import { type SqlClient, type SqlError, SqlSchema } from "effect/sql"
import { inspect } from "node:util"
import * as Logging from "../../../src/wiring/Logging.ts"
import * as DatabaseLive from "../../../src/sql/connection/Database.ts"
import { Database } from "../../../src/sql/connection/Database.ts"
import type { ConnectionPool } from "../../../src/sql/connection/ConnectionPool.ts"
import { DatabaseFailure } from "../../../src/port/DatabaseFailure.ts"
import { explainFailure } from "../../../src/sql/connection/DatabaseErrors.ts"
import { type DatabaseTarget, parseDatabaseUrl } from "../../../src/sql/connection/DatabaseTarget.ts"
import { openDatabase } from "../../../src/wiring/Persistence.ts"
import { adminClient, databaseSettings, freshDatabase, settingsFor } from "../../support/database/freshDatabase.ts"
import { refusingPostgres } from "../../support/database/RefusingPostgres.ts"
import { assert, describe, it, layer } from "../../support/it.ts"
import { takeLog } from "../../support/process/Recording.ts"

const canary = "canary_in_a_value"

/** The log line of a failure, in one of the formats of `LOG_FORMAT`. */
const logged = (cause: Cause.Cause<unknown>, LOG_FORMAT: string) =>
  Effect.gen(function* () {
    const { layer, writes } = takeLog()
    yield* Effect.provide(
      Effect.logError("Unexpected failure", cause),
      Layer.fresh(Logging.layer).pipe(
        Layer.provide([layer, ConfigProvider.layer(ConfigProvider.fromUnknown({ LOG_FORMAT }))])
      )
    )
    assert.isNotEmpty(writes)
    return writes.join("")
  })

/** Every form in which a failure may become text, by name. */
const formsOf = Effect.fnUntraced(function* (cause: Cause.Cause<unknown>) {
  const error = Cause.squash(cause)
  return {
    string: String(error),
    message: error instanceof Error ? error.message : "",
    stack: error instanceof Error ? error.stack : "",
    inspect: inspect(error, { depth: null, showHidden: true }),
    json: JSON.stringify(error),
    "string of the cause": String(cause),
    "pretty cause": Cause.pretty(cause),
    "inspect of the cause": inspect(cause, { depth: null, showHidden: true }),
    "json of the cause": JSON.stringify(cause),
    "pretty log": yield* logged(cause, "pretty"),
    "logfmt log": yield* logged(cause, "logfmt"),
    "json log": yield* logged(cause, "json")
  }
})

const leaksIn = (cause: Cause.Cause<unknown>) =>
  Effect.map(formsOf(cause), (forms) =>
    Object.entries(forms).flatMap(([name, text]) => (text?.includes(canary) ? [name] : []))
  )

const causeOf = <A, E, R>(effect: Effect.Effect<A, E, R>) =>
  Effect.map(Effect.exit(effect), (exit) => {
    assert(Exit.isFailure(exit))
    return exit.cause
  })

const poolOn = (target: DatabaseTarget) =>
  Effect.map(Layer.build(DatabaseLive.layer(target, databaseSettings)), (built) => Context.get(built, Database).writes)

interface Failing {
  readonly query: (sql: SqlClient.SqlClient) => Effect.Effect<unknown, SqlError.SqlError>
  readonly failure: { readonly kind: string; readonly sqlstate: string; readonly constraint: string | undefined }
}

const failing: Record<string, Failing> = {
  "a duplicate primary key": {
    query: (sql) =>
      Effect.andThen(
        sql`INSERT INTO notes (note) VALUES (${canary})`,
        sql`INSERT INTO notes (note) VALUES (${canary})`
      ),
    failure: { kind: "UniqueViolation", sqlstate: "23505", constraint: "notes_pkey" }
  },
  "a violated CHECK": {
    query: (sql) => sql`INSERT INTO notes (note) VALUES (${canary.repeat(4)})`,
    failure: { kind: "ConstraintError", sqlstate: "23514", constraint: "notes_note_check" }
  },
  "a NULL in a NOT NULL column": {
    query: (sql) => sql`INSERT INTO notes (note, other) VALUES (${canary}, NULL)`,
    failure: { kind: "ConstraintError", sqlstate: "23502", constraint: undefined }
  },
  "a text that is no UUID": {
    query: (sql) => sql`SELECT ${canary}::uuid`,
    failure: { kind: "UnknownError", sqlstate: "22P02", constraint: undefined }
  },
  "a RAISE EXCEPTION": {
    query: (sql) =>
      sql.unsafe(`DO $$ BEGIN RAISE EXCEPTION 'refused: ${canary}' USING CONSTRAINT = '${canary} '; END $$`),
    failure: { kind: "UnknownError", sqlstate: "P0001", constraint: undefined }
  }
}

class Notes extends Context.Service<Notes, ConnectionPool>()("byok/test/Notes") {}

const NotesLive = Layer.effect(
  Notes,
  Effect.gen(function* () {
    const url = yield* freshDatabase
    const admin = yield* adminClient(url)
    yield* admin`CREATE TABLE notes (
      note text PRIMARY KEY CHECK (char_length(note) < 60), other text NOT NULL DEFAULT '')`
    return yield* poolOn(parseDatabaseUrl(Redacted.make(url)))
  })
)

layer(NotesLive)("database errors keep only their kind, SQLSTATE and constraint (T4)", (it) => {
  it.effect.each(Object.entries(failing))("the error of %s does not show values", function* ([, { failure, query }]) {
    const { ask, sql } = yield* Notes
    const inTransaction = sql.withTransaction(query(sql))
    const raw = yield* causeOf(inTransaction)
    assert.include(yield* leaksIn(raw), "inspect", "the driver's error does hold the value (control)")

    const cause = yield* causeOf(ask(inTransaction, "tests.ask"))
    const error = Cause.squash(cause)
    assert.instanceOf(error, DatabaseFailure)
    const { constraint, kind, sqlstate } = error
    assert.deepStrictEqual({ kind, sqlstate, constraint }, failure)
    assert.deepStrictEqual(yield* leaksIn(cause), [])
  })

  it.effect("the error of an unexpected row does not show the row", function* () {
    const { ask, sql } = yield* Notes
    const select = SqlSchema.findAll({
      Request: Schema.String,
      Result: Schema.Struct({ note: Schema.Int }),
      execute: (text) => sql`SELECT ${text}::text AS note`
    })
    assert.deepStrictEqual(yield* leaksIn(yield* causeOf(ask(select(canary), "tests.ask"))), [])
  })
})

const isDeadline = (failure: unknown) => failure instanceof DatabaseFailure && failure.kind === "Deadline"

describe("the error of a failed connection (T4)", () => {
  const target = parseDatabaseUrl(Redacted.make(`postgres://u:${canary}@127.0.0.1/d`))

  it.effect.each([
    ["28P01", "AuthenticationError"],
    ["28000", "AuthenticationError"],
    ["3D000", "UnknownError"]
  ])(
    "keeps neither password nor the server's message if the server refuses with SQLSTATE %s",
    function* ([sqlstate, kind]) {
      const { port } = yield* refusingPostgres(sqlstate ?? "", `no, ${canary}`)
      const { ask, sql } = yield* poolOn({ ...target, port })
      assert.include(yield* leaksIn(yield* causeOf(sql`SELECT 1`)), "inspect", "control")
      const cause = yield* causeOf(ask(sql`SELECT 1`, "tests.ask"))
      assert.deepInclude(Cause.squash(cause), { kind, sqlstate })
      assert.deepStrictEqual(yield* leaksIn(cause), [])
    }
  )

  it.live("keeps neither password nor address if the server cannot be reached", function* () {
    const { ask, sql } = yield* poolOn({ ...target, host: `/nonexistent/${canary}` })
    assert.include(yield* leaksIn(yield* causeOf(sql`SELECT 1`)), "inspect", "control")
    // The deadline may pass during an attempt as well as between two.
    const cause = yield* causeOf(ask(sql`SELECT 1`, "tests.ask")).pipe(
      Effect.repeat({ until: (cause) => !isDeadline(Cause.squash(cause)) })
    )
    assert.deepInclude(Cause.squash(cause), { kind: "ConnectionError", sqlstate: "ENOENT" })
    assert.deepStrictEqual(yield* leaksIn(cause), [])
  })
})

const failure = (sqlstate: string) => new DatabaseFailure({ kind: "ConnectionError", sqlstate, constraint: undefined })

describe("the message for a database that cannot be used", () => {
  it("advises DATABASE_POOLER=true if a pooler may have refused the session's settings (08P01)", () => {
    assert.strictEqual(
      explainFailure("DATABASE_URL", failure("08P01"), 10),
      "DATABASE_URL cannot be reached (08P01); gave up after 10 seconds. Behind a transaction pooler such as PgBouncer, set DATABASE_POOLER=true."
    )
    assert.notInclude(explainFailure("DATABASE_URL", failure("08006"), 10), "DATABASE_POOLER")
  })

  it.live("comes sooner for an unknown host than for a database that may still be starting", function* () {
    const began = performance.now()
    const { message } = yield* Effect.flip(
      openDatabase(settingsFor("postgres://canary:canary@canary.invalid/canary?sslmode=verify-full"))
    )
    assert.strictEqual(message, "DATABASE_URL: its host is not known (ENOTFOUND).")
    assert.isBelow(performance.now() - began, 10_000, "the limit of one that may still be starting")
  })
})
