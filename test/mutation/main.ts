import { dirname } from "node:path"
import { Stryker } from "@stryker-mutator/core"

/** What is mutated, and the tests that must notice: each folder is held by its own. */
const areas = [
  {
    name: "domain",
    mutate: ["src/domain/*.ts", "!src/domain/SealingContext.ts"],
    testFiles: ["test/domain/*.test.ts"]
  },
  { name: "crypto", mutate: ["src/crypto/*.ts", "src/domain/SealingContext.ts"], testFiles: ["test/crypto/*.test.ts"] },
  { name: "service", mutate: ["src/service/*.ts"], testFiles: ["test/service/*.test.ts"] },
  { name: "http", mutate: ["src/http/Envelope.ts"], testFiles: ["test/http/Envelope.test.ts"] }
]
const wanted = process.argv.slice(2)
const reports = "node_modules/.cache/mutation"
const least = 90

const detected = ["Killed", "Timeout"]
const undetected = ["Survived", "NoCoverage"]
const counts = new Map<string, Record<string, number>>()

for (const { mutate, name, testFiles } of areas) {
  if (wanted.length > 0 && !wanted.includes(name)) continue
  const results = await new Stryker({
    mutate,
    testFiles,
    testRunner: "vitest",
    vitest: { configFile: "test/mutation/vitest.config.ts", related: false },
    plugins: ["@stryker-mutator/vitest-runner", "./test/mutation/IgnoreTexts.ts"],
    ignorers: ["texts"],
    timeoutMS: 20_000,
    incremental: true,
    incrementalFile: `${reports}/${name}.incremental.json`,
    reporters: ["clear-text", "json", "progress-append-only"],
    clearTextReporter: { logTests: false, reportTests: false, reportScoreTable: false },
    jsonReporter: { fileName: `${reports}/${name}.json` },
    warnings: { slow: false }
  }).runMutationTest()
  for (const { fileName, status } of results) {
    const folder = dirname(fileName)
    const count = counts.get(folder) ?? {}
    count[status] = (count[status] ?? 0) + 1
    counts.set(folder, count)
  }
}

const sum = (count: Record<string, number>, statuses: ReadonlyArray<string>) =>
  statuses.reduce((total, status) => total + (count[status] ?? 0), 0)

console.table(
  Object.fromEntries(
    Array.from(counts, ([folder, count]) => {
      const valid = sum(count, [...detected, ...undetected])
      const score = (100 * sum(count, detected)) / valid
      if (!(score >= least)) process.exitCode = 1
      return [folder, { ...count, score: `${score.toFixed(1)} %` }]
    })
  )
)
