import { randomBytes } from "node:crypto"
import { mkdtempSync, rmSync, writeFileSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { Duration, Effect, Exit, Redacted, Scope } from "effect"
import type { TestProject } from "vitest/node"
import { makeClient } from "../../../src/sql/connection/Database.ts"
import { parseDatabaseUrl } from "../../../src/sql/connection/DatabaseTarget.ts"
import { urlOf } from "./embedded.ts"
import { migrate } from "./migrate.ts"
import { bundle } from "../process/bundle.ts"
import { type Endpoint, start } from "../../../src/sql/embedded/EmbeddedPostgres.ts"

declare module "vitest" {
  export interface ProvidedContext {
    /** The server on which every test file creates a database of its own. */
    readonly serverUrl: string
    /** The name of a migrated database there, to be copied. */
    readonly migratedDatabase: string
  }
}

const settings = { connectTimeout: Duration.seconds(5), pooler: false }

const clientOf = (url: string) => makeClient(parseDatabaseUrl(Redacted.make(url)), settings)

/** Makes a server let in roles with passwords of tests, and not wait for the disk: none of its data outlives the tests. */
const adaptToTests = Effect.fnUntraced(function* (endpoint: Endpoint) {
  const sql = yield* clientOf(urlOf(endpoint))
  const [found] = yield* sql<{ path: string }>`SELECT current_setting('hba_file') AS path`
  writeFileSync(found?.path ?? "", "local all all password\n")
  yield* sql`ALTER SYSTEM SET fsync = off`
  yield* sql`SELECT pg_reload_conf()`
  return urlOf(endpoint)
}, Effect.scoped)

/** Makes a migrated database, dropped when the scope closes, and returns its name. */
const makeMigrated = Effect.fnUntraced(function* (serverUrl: string) {
  const name = `byok_test_${randomBytes(6).toString("hex")}`
  /** On a connection of its own: one of minutes ago is closed, and a scope that closes opens none. */
  const run = (statement: string) =>
    Effect.scoped(Effect.flatMap(clientOf(serverUrl), (admin) => admin.unsafe(statement)))
  yield* Effect.acquireRelease(run(`CREATE DATABASE ${name}`), () => Effect.orDie(run(`DROP DATABASE ${name}`)))
  yield* migrate({ ...parseDatabaseUrl(Redacted.make(serverUrl)), database: name }, settings)
  return name
})

/** Tests start the bundled program, and run on the server of `DATABASE_URL`, else on an embedded PostgreSQL of their own. */
export default async function setup(project: TestProject) {
  process.env["BYOK_TEST_PROGRAM"] = await bundle()
  const given = process.env["DATABASE_URL"]
  delete process.env["DATABASE_URL"]
  const directory = mkdtempSync(join(tmpdir(), "byok-test-"))
  const scope = Scope.makeUnsafe()
  const opened = Effect.gen(function* () {
    const url = given ?? (yield* adaptToTests(yield* start(directory)))
    project.provide("serverUrl", url)
    project.provide("migratedDatabase", yield* makeMigrated(url))
  })
  await Effect.runPromise(Scope.provide(opened, scope))
  return async () => {
    await Effect.runPromise(Scope.close(scope, Exit.void))
    rmSync(directory, { recursive: true, force: true })
  }
}
