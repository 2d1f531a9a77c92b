import { defineConfig } from "vitest/config"

const setup = { globalSetup: "test/support/database/globalSetup.ts" }

export default defineConfig({
  test: {
    include: ["test/mutation/tests.ts"],
    testTimeout: 30_000,
    hookTimeout: 60_000,
    ...(process.env["MUTATION_DATABASE"] === "true" ? setup : {})
  }
})
