import { globSync } from "node:fs"
import { dirname, relative } from "node:path"
import { Stryker } from "@stryker-mutator/core"

const shared = ["src/runtime/{AesGcm,FairQueue,MemoryBudget}.ts", "src/service/tokens/*.ts"]

/** The mutated sources, and the tests that must notice, some of them on a database. */
const areas = [
  {
    tests: "test/domain/*.test.ts",
    sources: "src/domain/*.ts",
    exclude: ["src/domain/SealedKey.ts", "src/domain/{CloudKey,Principal}.ts"]
  },
  { tests: "test/domain/{CloudKey,Principal}.test.ts", sources: "src/domain/{CloudKey,Principal}.ts" },
  { tests: "test/domain/routing/*.test.ts", sources: "src/domain/routing/*.ts" },
  {
    tests: "test/{crypto/**/*,runtime/AesGcm}.test.ts",
    sources: "src/{crypto/*,crypto/keyring/*,domain/SealedKey,runtime/AesGcm}.ts"
  },
  {
    tests: "test/{service/!(routing),port,runtime}/*.test.ts",
    sources: "src/{service/!(routing),port,runtime}/*.ts",
    exclude: shared
  },
  { tests: "test/runtime/{FairQueue,MemoryBudget}.test.ts", sources: "src/runtime/{FairQueue,MemoryBudget}.ts" },
  {
    tests: "test/service/routing/{makeWriteBehind,HealthState}.test.ts",
    sources: "src/service/routing/{makeWriteBehind,HealthState}.ts"
  },
  { tests: "test/service/tokens/*.test.ts", sources: "src/service/tokens/*.ts" },
  {
    tests: "test/{service/routing/{Pools,Router},port/CredentialPoolsContract,world/World}.test.ts",
    sources: "src/{service/routing/Pools,sql/routing/CredentialPoolsLive}.ts",
    database: true
  },
  {
    tests: "test/{sql/credentials/{writeCredentials,ChangeRetry,InsertRetry,PoolRoom,Reorder},sql/links/*}.test.ts",
    sources: "src/sql/credentials/writeCredentials.ts",
    database: true
  },
  {
    tests: "test/{sql/credentials/listCredentials,http/List,port/StoresContract,cli/CredentialCommand}.test.ts",
    sources: "src/sql/credentials/listCredentials.ts",
    database: true
  },
  { tests: "test/sql/connection/Batching.test.ts", sources: "src/sql/connection/Batching.ts" },
  { tests: "test/service/routing/Attempts.test.ts", sources: "src/service/routing/{Attempts,attemptText}.ts" },
  {
    tests: "test/gateway/{Attempts,GatewayServer,Credentials,Events,LeavingClient}.test.ts",
    sources: "src/gateway/{Handlers,makeAttempts}.ts",
    database: true
  },
  { tests: "test/http/Envelope.test.ts", sources: "src/http/Envelope.ts" },
  {
    tests: "test/http/{ParserCut,TransportRefusal}.test.ts",
    sources: "src/http/{ParserCut,TransportRefusal}.ts"
  },
  { tests: "test/wiring/StandardError.test.ts", sources: "src/wiring/StandardError.ts" }
].map(({ database = false, exclude = [], sources, tests }) => ({
  tests,
  database,
  files: globSync(sources, { exclude })
}))
const wanted = process.argv.slice(2)
const known = areas.flatMap(({ files }) => files)
if (!wanted.every((start) => known.some((file) => file.startsWith(start)))) {
  console.error(`Known are paths that begin with ${[...new Set(known.map(dirname))].join(", ")}`)
  process.exit(2)
}
const least = 90

/** Laws of routing notice a mutant within a few cases, or not at all. */
process.env["PROPERTY_RUNS"] ??= "1000"
process.env["MUTATION_ROOT"] = process.cwd()

const counts = new Map<string, Record<string, number>>()
for (const { database, files, tests } of areas) {
  const mutate = files.filter((file) => wanted.length === 0 || wanted.some((start) => file.startsWith(start)))
  if (mutate.length === 0) continue
  process.env["MUTATION_TESTS"] = tests
  process.env["MUTATION_DATABASE"] = String(database)
  const results = await new Stryker({
    mutate,
    testRunner: "vitest",
    vitest: { configFile: "test/mutation/vitest.config.ts", related: false },
    plugins: ["@stryker-mutator/vitest-runner", "./test/mutation/IgnoreTexts.ts"],
    ignorers: ["texts"],
    timeoutMS: Number(process.env["MUTATION_TIMEOUT"] ?? 10_000),
    reporters: ["clear-text", "json", "progress-append-only"],
    clearTextReporter: { logTests: false, reportTests: false, reportScoreTable: false },
    jsonReporter: { fileName: `node_modules/.cache/mutation/${tests.replaceAll(/\W+/g, "-")}.json` },
    warnings: { slow: false, unknownOptions: true, preprocessorErrors: true, unserializableOptions: true }
  }).runMutationTest()
  for (const { fileName, status } of results) {
    const area = `${dirname(relative("", fileName))} by ${tests}`
    const count = counts.get(area) ?? {}
    counts.set(area, { ...count, [status]: (count[status] ?? 0) + 1 })
  }
}

const table = Array.from(counts, ([area, count]) => {
  const sum = (...statuses: ReadonlyArray<string>) => statuses.reduce((all, status) => all + (count[status] ?? 0), 0)
  const score = (100 * sum("Killed", "Timeout")) / sum("Killed", "Timeout", "Survived", "NoCoverage")
  if (score < least) process.exitCode = 1
  return { area, ...count, score: Number(score.toFixed(1)) }
})
console.table(table)
