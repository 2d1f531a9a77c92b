import { defineConfig } from "vitest/config"

/** The tests that run in one process and need no database. One worker without isolation loads them once for each mutant. */
export default defineConfig({
  test: {
    include: ["test/{domain,crypto,service}/*.test.ts", "test/http/Envelope.test.ts"],
    exclude: ["test/service/*Contract.test.ts"],
    isolate: false,
    testTimeout: 30_000
  }
})
