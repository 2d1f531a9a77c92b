import { globSync } from "node:fs"
import { join } from "node:path"
import { it } from "vitest"

const hasDatabase = process.env["MUTATION_DATABASE"] === "true"

/** Tests that need PostgreSQL, a server that closes slowly, or sources without mutants. */
const exclude = [
  "test/port/*Contract.test.ts",
  "test/crypto/keyring/KeyringEditor.test.ts",
  "test/domain/routing/PlantedFaults.test.ts"
]

/** All test files of an area as one, so that Effect is loaded once for each mutant. A file that cannot be loaded fails a test. */
const files = globSync(process.env["MUTATION_TESTS"] ?? "", { exclude: hasDatabase ? [] : exclude }).sort()
for (const file of files) {
  const loading: Promise<unknown> = import(join(process.cwd(), file))
  await loading.catch(() => undefined)
  it(`${file} can be loaded`, () => loading)
}
