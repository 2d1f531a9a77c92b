import { globSync } from "node:fs"
import { join } from "node:path"

/** Need PostgreSQL, or a server that takes its time to close. */
const exclude = ["test/service/*Contract.test.ts", "test/service/KeyConfidentiality.test.ts"]

/** All tests of an area as one file, so that Effect is loaded once for each mutant. */
const files = globSync(process.env["MUTATION_TESTS"] ?? "", { exclude })
for (const file of files.sort()) await import(join(process.cwd(), file))
