import { globSync } from "node:fs"
import { dirname, relative } from "node:path"
import { Stryker } from "@stryker-mutator/core"

/** What is mutated, and the tests that must notice. */
const areas = [
  { tests: "test/domain/*.test.ts", sources: "src/domain/*.ts", exclude: ["src/domain/SealedKey.ts"] },
  { tests: "test/domain/routing/*.test.ts", sources: "src/domain/routing/*.ts" },
  { tests: "test/crypto/**/*.test.ts", sources: "src/{crypto/*,crypto/keyring/*,domain/SealedKey}.ts" },
  { tests: "test/{service/*,port}/*.test.ts", sources: "src/{service/!(routing),port}/*.ts" },
  {
    tests: "test/service/routing/{makeWriteBehind,HealthState}.test.ts",
    sources: "src/service/routing/{makeWriteBehind,HealthState}.ts"
  },
  { tests: "test/http/Envelope.test.ts", sources: "src/http/Envelope.ts" }
].map(({ exclude = [], sources, tests }) => ({ tests, files: globSync(sources, { exclude }) }))
const wanted = process.argv.slice(2)
const known = areas.flatMap(({ files }) => files)
if (!wanted.every((start) => known.some((file) => file.startsWith(start)))) {
  console.error(`Known are paths that begin with ${[...new Set(known.map(dirname))].join(", ")}`)
  process.exit(2)
}
const least = 90

/** Laws of routing notice a mutant within a few cases, or not at all. */
process.env["PROPERTY_RUNS"] ??= "200"

const counts = new Map<string, Record<string, number>>()
for (const { files, tests } of areas) {
  const mutate = files.filter((file) => wanted.length === 0 || wanted.some((start) => file.startsWith(start)))
  if (mutate.length === 0) continue
  process.env["MUTATION_TESTS"] = tests
  const results = await new Stryker({
    mutate,
    testRunner: "vitest",
    vitest: { configFile: "test/mutation/vitest.config.ts", related: false },
    plugins: ["@stryker-mutator/vitest-runner", "./test/mutation/IgnoreTexts.ts"],
    ignorers: ["texts"],
    timeoutMS: 10_000,
    reporters: ["clear-text", "json", "progress-append-only"],
    clearTextReporter: { logTests: false, reportTests: false, reportScoreTable: false },
    jsonReporter: { fileName: `node_modules/.cache/mutation/${dirname(tests)}.json` },
    warnings: { slow: false, unknownOptions: true, preprocessorErrors: true, unserializableOptions: true }
  }).runMutationTest()
  for (const { fileName, status } of results) {
    const folder = dirname(relative("", fileName))
    const count = counts.get(folder) ?? {}
    counts.set(folder, { ...count, [status]: (count[status] ?? 0) + 1 })
  }
}

const table = Array.from(counts, ([folder, count]) => {
  const sum = (...statuses: ReadonlyArray<string>) => statuses.reduce((all, status) => all + (count[status] ?? 0), 0)
  const score = (100 * sum("Killed", "Timeout")) / sum("Killed", "Timeout", "Survived", "NoCoverage")
  if (score < least) process.exitCode = 1
  return { folder, ...count, score: Number(score.toFixed(1)) }
})
console.table(table)
