import { mkdtempSync, rmSync, writeFileSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { Duration, Effect, Exit, Redacted, Scope } from "effect"
import { Reactivity } from "effect/reactivity"
import type { TestProject } from "vitest/node"
import { makeClient } from "../../../src/sql/connection/Database.ts"
import { parseDatabaseUrl } from "../../../src/sql/connection/DatabaseTarget.ts"
import { bundle } from "../process/bundle.ts"
import { type Endpoint, start } from "../../../src/sql/embedded/EmbeddedPostgres.ts"

declare module "vitest" {
  export interface ProvidedContext {
    /** The server on which every test file creates a database of its own. */
    readonly serverUrl: string
  }
}

const urlOf = ({ database, host, username }: Endpoint, ...password: ReadonlyArray<string>) =>
  `postgres://${[username, ...password].map(encodeURIComponent).join(":")}@localhost/${database}?host=${encodeURIComponent(host)}`

/** Makes a server ask for a password as others do, or tests might pass only on one that trusts every client. */
const askForPassword = Effect.fnUntraced(function* (endpoint: Endpoint, password: string) {
  const target = parseDatabaseUrl(Redacted.make(urlOf(endpoint)))
  const sql = yield* makeClient(target, { connectTimeout: Duration.seconds(5), poolSize: 1, pooler: false })
  yield* sql.unsafe(`ALTER ROLE ${endpoint.username} PASSWORD '${password}'`)
  const [found] = yield* sql<{ path: string }>`SELECT current_setting('hba_file') AS path`
  writeFileSync(found?.path ?? "", "local all all password\n")
  yield* sql`SELECT pg_reload_conf()`
  return urlOf(endpoint, password)
}, Effect.scoped)

/** Tests start the bundled program, and run on the server of `DATABASE_URL`, else on an embedded PostgreSQL of their own. */
export default async function setup(project: TestProject) {
  process.env["BYOK_TEST_PROGRAM"] = await bundle()
  const given = process.env["DATABASE_URL"]
  delete process.env["DATABASE_URL"]
  if (given !== undefined) return project.provide("serverUrl", given)
  const directory = mkdtempSync(join(tmpdir(), "byok-test-"))
  const scope = Scope.makeUnsafe()
  const started = Effect.flatMap(start(directory), (endpoint) => askForPassword(endpoint, "of the tests"))
  const url = await Effect.runPromise(Effect.provide(Scope.provide(started, scope), Reactivity.layer))
  project.provide("serverUrl", url)
  return async () => {
    await Effect.runPromise(Scope.close(scope, Exit.void))
    rmSync(directory, { recursive: true, force: true })
  }
}
