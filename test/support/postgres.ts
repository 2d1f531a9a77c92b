import { mkdtempSync, rmSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { Effect, Exit, Scope } from "effect"
import type { TestProject } from "vitest/node"
import { start } from "../../src/sql/embedded/EmbeddedPostgres.ts"

declare module "vitest" {
  export interface ProvidedContext {
    /** The server on which every test file creates a database of its own. */
    readonly serverUrl: string
  }
}

/** Tests run on the server of `DATABASE_URL`, else on an embedded PostgreSQL of their own. */
export default async function setup(project: TestProject) {
  const given = process.env["DATABASE_URL"]
  delete process.env["DATABASE_URL"]
  if (given !== undefined) return project.provide("serverUrl", given)
  const directory = mkdtempSync(join(tmpdir(), "byok-test-"))
  const scope = Scope.makeUnsafe()
  const { database, host, username } = await Effect.runPromise(Scope.provide(start(directory), scope))
  project.provide("serverUrl", `postgres://${username}@localhost/${database}?host=${encodeURIComponent(host)}`)
  return async () => {
    await Effect.runPromise(Scope.close(scope, Exit.void))
    rmSync(directory, { recursive: true, force: true })
  }
}
