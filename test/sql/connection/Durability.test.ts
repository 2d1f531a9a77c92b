import { Context, Effect, Layer } from "effect"
import * as Byok from "../../../src/wiring/Byok.ts"
import { Readiness } from "../../../src/port/Readiness.ts"
import { Database } from "../../../src/sql/connection/Database.ts"
import { adminClient, migratedDatabase, settingsFor } from "../../support/database/freshDatabase.ts"
import { Recording } from "../../support/process/Recording.ts"
import { assert, describe, it } from "../../support/it.ts"

const off = "synchronous_commit is off"

/** The service on a database for which an operator has set `synchronous_commit`. */
const open = (value: string, pooler = false) =>
  Effect.gen(function* () {
    const url = yield* migratedDatabase
    const admin = yield* adminClient(url)
    const operatorSets = (value: string) =>
      admin.unsafe(`
        DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET synchronous_commit = ${value}', current_database()); END $$`)
    yield* operatorSets(value)
    const { database, ...settings } = settingsFor(url)
    const service = Byok.layerWith({ ...settings, database: { ...database, pooler } })
    const context = yield* Layer.build(Layer.provideMerge(service, Recording.layer))
    const { reads, writes } = Context.get(context, Database)
    const effective = Effect.forEach([reads, writes], ({ ask, sql }) =>
      Effect.map(
        ask(sql<{ value: string }>`SELECT current_setting('synchronous_commit') AS value`, "tests.ask"),
        ([row]) => row?.value
      )
    )
    const { logs } = Context.get(context, Recording)
    const warnings = logs.filter(({ level, text }) => level === "Warn" && text.includes(off)).length
    const { problems } = Context.get(context, Readiness)
    return { admin, effective, operatorSets, problems, warnings }
  })

describe("the synchronous_commit that an operator sets for the database (SECURITY.md, PostgreSQL)", () => {
  it.live("is turned on for the service's sessions if it is off; the service warns and is ready", function* () {
    const { effective, problems, warnings } = yield* open("off")
    assert.deepStrictEqual(yield* effective, ["on", "on"])
    assert.deepStrictEqual([yield* problems, warnings], [[], 1])
  })

  it.live.each(["local", "remote_write", "on", "remote_apply"])("is left as it is: %s", function* (value) {
    const { effective, problems, warnings } = yield* open(value)
    assert.deepStrictEqual(yield* effective, [value, value])
    assert.deepStrictEqual([yield* problems, warnings], [[], 0])
  })

  it.live("stays off behind a transaction pooler; the service warns and is not ready", function* () {
    const { effective, problems, warnings } = yield* open("off", true)
    assert.deepStrictEqual(yield* effective, ["off", "off"])
    assert.deepStrictEqual(
      [yield* problems, warnings],
      [[`${off}: a database crash would lose acknowledged writes`], 1]
    )
  })

  it.live("makes the service unready if it is turned off after the start", function* () {
    const { admin, operatorSets, problems } = yield* open("on")
    assert.deepStrictEqual(yield* problems, [])
    yield* operatorSets("off")
    yield* admin`
        SELECT pg_terminate_backend(pid) FROM pg_stat_activity
        WHERE datname = current_database() AND pid <> pg_backend_pid()`
    assert.deepStrictEqual(yield* problems, [`${off}: a database crash would lose acknowledged writes`])
  })
})
