import { assert, describe, it } from "@effect/vitest"
import { Effect, Result, type Scope } from "effect"
import type { TestContext } from "vitest"
import type { Skipped } from "../support/process/installedPrograms.ts"
import { type Finding, planted, shipped } from "./Check.ts"
import { checks } from "./checks.ts"

/** What a check finds; the test is skipped where the check cannot run. */
const problemsOf = async (context: TestContext, run: Effect.Effect<Finding, Skipped, Scope.Scope>) => {
  const result = await Effect.runPromise(Effect.result(Effect.scoped(run)))
  return Result.isSuccess(result) ? result.success.problems : context.skip(result.failure.why)
}

describe.each(checks.filter(({ slow }) => slow !== true))("deploy/$piece", (check) => {
  it("is as it should be", async (context) => {
    assert.deepStrictEqual(await problemsOf(context, check.run(shipped)), [])
  })

  for (const mistake of check.mistakes) {
    it(`would not be with ${mistake.instead} in ${mistake.file} (control)`, async (context) => {
      assert.isNotEmpty(await problemsOf(context, planted(check, mistake)))
    })
  }
})
