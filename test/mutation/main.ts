import { Stryker } from "@stryker-mutator/core"

/** What is mutated, with the tests that must notice: each folder is held by its own. */
const areas = [
  { name: "domain", mutate: ["src/domain/*.ts"], testFiles: ["test/domain/*.test.ts"] },
  { name: "crypto", mutate: ["src/crypto/*.ts"], testFiles: ["test/crypto/*.test.ts"] },
  { name: "service", mutate: ["src/service/*.ts"], testFiles: ["test/service/*.test.ts"] },
  { name: "http", mutate: ["src/http/Envelope.ts"], testFiles: ["test/http/Envelope.test.ts"] }
]

const cache = "node_modules/.cache/mutation"
const wanted = process.argv.slice(2)

for (const { mutate, name, testFiles } of areas) {
  if (wanted.length > 0 && !wanted.includes(name)) continue
  const results = await new Stryker({
    mutate,
    testFiles,
    testRunner: "vitest",
    vitest: { configFile: "test/mutation/vitest.config.ts", related: false },
    plugins: ["@stryker-mutator/vitest-runner", "./test/mutation/IgnoreTexts.ts"],
    ignorers: ["texts"],
    coverageAnalysis: "perTest",
    concurrency: 2,
    incremental: true,
    incrementalFile: `${cache}/${name}.incremental.json`,
    reporters: ["clear-text", "json"],
    clearTextReporter: { logTests: false, allowColor: false },
    jsonReporter: { fileName: `${cache}/${name}.json` },
    tempDirName: ".stryker-tmp",
    warnings: true
  }).runMutationTest()
  console.log(name, results.length)
}
