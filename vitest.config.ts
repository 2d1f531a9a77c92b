import { defineConfig } from "vitest/config"

export default defineConfig({
  test: {
    include: ["test/**/*.test.ts"],
    globalSetup: "test/support/database/globalSetup.ts",
    testTimeout: 120_000,
    hookTimeout: 240_000,
    maxWorkers: 3,
    reporters: ["default", ["json", { outputFile: "node_modules/.cache/test-report.json" }]]
  }
})
