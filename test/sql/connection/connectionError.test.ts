import { assert, describe, it } from "@effect/vitest"
import { Effect } from "effect"
import { DatabaseFailure } from "../../../src/port/DatabaseFailure.ts"
import { sentenceOn } from "../../../src/sql/connection/DatabaseErrors.ts"
import { openDatabase } from "../../../src/wiring/Persistence.ts"
import { settingsFor } from "../../support/database/freshDatabase.ts"

const failure = (sqlstate: string) => new DatabaseFailure({ kind: "ConnectionError", sqlstate, constraint: undefined })

describe("a database that cannot be used", () => {
  it("behind a pooler that refuses the session's settings names DATABASE_POOLER (08P01)", () => {
    assert.strictEqual(
      sentenceOn("DATABASE_URL", failure("08P01"), 10),
      "DATABASE_URL cannot be reached (08P01); gave up after 10 seconds. Behind a transaction pooler such as PgBouncer, set DATABASE_POOLER=true."
    )
    assert.notInclude(sentenceOn("DATABASE_URL", failure("08006"), 10), "DATABASE_POOLER")
  })

  it.live("because its host is not known is reported as that, sooner than one that may still be starting", () =>
    Effect.gen(function* () {
      const began = performance.now()
      const { message } = yield* Effect.flip(
        openDatabase(settingsFor("postgres://canary:canary@canary.invalid/canary?sslmode=verify-full"))
      )
      assert.strictEqual(message, "DATABASE_URL: its host is not known (ENOTFOUND).")
      assert.isBelow(performance.now() - began, 10_000, "the limit of one that may still be starting")
    })
  )
})
