import { defineConfig } from "vitest/config"

/** No global set-up: these tests need no database. */
export default defineConfig({
  test: { include: ["test/mutation/tests.ts"], testTimeout: 30_000, hookTimeout: 60_000 }
})
