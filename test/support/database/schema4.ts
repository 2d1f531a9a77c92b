import { PgClient, PgMigrator } from "@effect/sql-pg"
import * as NodeServices from "@effect/platform-node/NodeServices"
import { Duration, Effect, Redacted } from "effect"
import { Reactivity } from "effect/reactivity"
import { SqlClient } from "effect/sql"
import { makeClient } from "../../../src/sql/connection/Database.ts"
import { parseDatabaseUrl } from "../../../src/sql/connection/DatabaseTarget.ts"
import createTables from "../../../src/sql/migrations/0001_create_tables.ts"
import createReceipts from "../../../src/sql/migrations/0002_create_receipts.ts"
import createAudit from "../../../src/sql/migrations/0003_create_audit.ts"
import retireKeks from "../../../src/sql/migrations/0004_retire_keks.ts"

const migrations = {
  "0001_create_tables": createTables,
  "0002_create_receipts": createReceipts,
  "0003_create_audit": createAudit,
  "0004_retire_keks": retireKeks
}

/** Brings an empty database to the schema of 1.0.0. */
export const schema4 = (url: string) =>
  Effect.gen(function* () {
    const client = yield* makeClient(parseDatabaseUrl(Redacted.make(url)), {
      connectTimeout: Duration.seconds(5),
      poolSize: 1,
      pooler: false
    })
    return yield* PgMigrator.run({ loader: PgMigrator.fromRecord(migrations) }).pipe(
      Effect.provideService(SqlClient.SqlClient, client),
      Effect.provideService(PgClient.PgClient, client)
    )
  }).pipe(Effect.scoped, Effect.provide([Reactivity.layer, NodeServices.layer]))
