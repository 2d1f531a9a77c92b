import { globSync } from "node:fs"
import { defineConfig } from "vitest/config"
import { Summary } from "./test/support/process/Summary.ts"

/** What takes long, or starts many processes: `npm run test:slow`. */
const slow = ["test/{deploy,examples,faults,leaks}/**/*.test.ts", "test/**/*.slow.test.ts"]
/** Needs the machine for itself, as it bounds how long answers take: `npm run heap`. */
const heap = ["test/faults/Heap.test.ts"]
/** What leaves its process as it was: these files share threads, one after another. */
const shared = [
  "test/{cli,client,contract,crypto,domain,http,links,port,runtime,serve,service,sql,telemetry,wiring,world}/**/*.test.ts",
  "test/bench/Picture.test.ts"
]

export default defineConfig({
  test: {
    globalSetup: "test/support/database/globalSetup.ts",
    testTimeout: 120_000,
    hookTimeout: 240_000,
    maxWorkers: 3,
    reporters: [
      "default",
      ["json", { outputFile: process.env["TEST_REPORT"] ?? "node_modules/.cache/test-report.json" }],
      new Summary(() => globSync(slow))
    ],
    projects: [
      { extends: true, test: { name: "shared", include: shared, exclude: slow, pool: "threads", isolate: false } },
      { extends: true, test: { name: "isolated", include: ["test/**/*.test.ts"], exclude: [...slow, ...shared] } },
      // Its processes share the cores with others, so a deadline may be missed once; Summary names each such test.
      { extends: true, test: { name: "slow", include: slow, exclude: heap, retry: 1 } },
      { extends: true, test: { name: "heap", include: heap } }
    ]
  }
})
