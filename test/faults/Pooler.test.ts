import { Cause, Context, Duration, Effect, Exit, Layer } from "effect"
import { DatabaseFailure } from "../../src/port/DatabaseFailure.ts"
import * as DatabaseLive from "../../src/sql/connection/Database.ts"
import { Database, type DatabaseSettings } from "../../src/sql/connection/Database.ts"
import { databaseProxy } from "../support/database/DatabaseProxy.ts"
import { adminClient, databaseSettings, freshDatabase } from "../support/database/freshDatabase.ts"
import { postgresMessage } from "../support/database/RefusingPostgres.ts"
import { assert, describe, it } from "../support/it.ts"

/** Replaces a message in a chunk. Messages at the start of a session arrive in one chunk. */
const replacing = (before: Buffer, after: Buffer) => (bytes: Buffer) => {
  const at = bytes.indexOf(before)
  return at < 0 ? bytes : Buffer.concat([bytes.subarray(0, at), after, bytes.subarray(at + before.length)])
}

const standby = (is: "on" | "off") => postgresMessage("S", Buffer.from(`in_hot_standby\0${is}\0`))

const error = (sqlstate: string) =>
  postgresMessage("E", Buffer.from(`SFATAL\0VFATAL\0C${sqlstate}\0Mterminating connection\0\0`))

/** Writes through a pooler that changes what PostgreSQL sends, and reads what is stored. */
const insertThrough = (change: (bytes: Buffer) => Buffer, settings: Partial<DatabaseSettings> = {}) =>
  Effect.gen(function* () {
    const url = yield* freshDatabase
    const admin = yield* adminClient(url)
    yield* admin`CREATE TABLE t (id int PRIMARY KEY)`
    const { target } = yield* databaseProxy(url, change)
    const layer = DatabaseLive.layer(target, { ...databaseSettings, pooler: true, ...settings })
    const { writes } = Context.get(yield* Layer.build(layer), Database)
    const exit = yield* Effect.exit(
      writes.ask(writes.sql`INSERT INTO t VALUES (1) ON CONFLICT DO NOTHING`, "tests.ask")
    )
    return { exit, stored: yield* admin`SELECT id FROM t` }
  })

describe("writes through a pooler", () => {
  const outdated = replacing(standby("off"), standby("on"))

  it.live("succeed if the pooler reports that the server is a standby, as before its promotion (F2)", function* () {
    const { exit, stored } = yield* insertThrough(outdated)
    assert.isTrue(Exit.isSuccess(exit))
    assert.deepStrictEqual(stored, [{ id: 1 }])
  })

  it.live("fail without the setting for poolers if the server reports that it is a standby (control)", function* () {
    const { exit, stored } = yield* insertThrough(outdated, { pooler: false, deadline: Duration.millis(500) })
    assert(Exit.isFailure(exit))
    const failure = Cause.squash(exit.cause)
    assert.instanceOf(failure, DatabaseFailure)
    // Which error it is depends on the progress of the last attempt at the deadline.
    assert.isTrue(failure.sqlstate === "ECONNRESET" || failure.kind === "Deadline", failure.message)
    assert.deepStrictEqual(stored, [])
  })

  it.live("are retried if the pooler adds an error of its own to the server's (F5)", function* () {
    let failures = 0
    const { exit, stored } = yield* insertThrough((bytes) => {
      if (failures > 0 || !bytes.includes("INSERT 0 1")) return bytes
      failures += 1
      return Buffer.concat([error("57P01"), error("08P01")])
    })
    assert.isTrue(Exit.isSuccess(exit))
    assert.deepStrictEqual({ failures, stored }, { failures: 1, stored: [{ id: 1 }] })
  })
})
