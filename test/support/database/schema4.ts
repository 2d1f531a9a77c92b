import { PgClient, PgMigrator } from "@effect/sql-pg"
import * as NodeServices from "@effect/platform-node/NodeServices"
import { Duration, Effect, Redacted } from "effect"
import { Reactivity } from "effect/reactivity"
import { SqlClient } from "effect/sql"
import { makeClient } from "../../../src/sql/connection/Database.ts"
import { parseDatabaseUrl } from "../../../src/sql/connection/DatabaseTarget.ts"
import { version1 } from "../../../src/sql/migrations/version1.ts"

/** Brings an empty database to the schema of 1.0.0. */
export const schema4 = (url: string) =>
  Effect.gen(function* () {
    const client = yield* makeClient(parseDatabaseUrl(Redacted.make(url)), {
      connectTimeout: Duration.seconds(5),
      poolSize: 1,
      pooler: false
    })
    return yield* PgMigrator.run({ loader: PgMigrator.fromRecord(version1.migrations) }).pipe(
      Effect.provideService(SqlClient.SqlClient, client),
      Effect.provideService(PgClient.PgClient, client)
    )
  }).pipe(Effect.scoped, Effect.provide([Reactivity.layer, NodeServices.layer]))
