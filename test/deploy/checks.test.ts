import { assert, describe, it } from "@effect/vitest"
import { Effect, Result } from "effect"
import { checks } from "./checks.ts"
import { planted } from "./planted.ts"
import { shipped } from "./shipped.ts"

const outcomes = await Promise.all(
  checks
    .filter(({ slow }) => slow !== true)
    .map((check) =>
      Effect.runPromise(Effect.map(Effect.result(Effect.scoped(check.run(shipped))), (result) => ({ check, result })))
    )
)

for (const { check, result } of outcomes) {
  const skipped = Result.isFailure(result) ? ` (skipped: ${result.failure.why})` : ""
  describe.skipIf(skipped !== "")(`deploy/${check.piece}${skipped}`, () => {
    it("is as it should be", () => {
      assert.deepStrictEqual(Result.isSuccess(result) ? result.success.problems : ["skipped"], [])
    })

    it.live.each(check.mistakes)("would not be with $instead in $file (control)", (mistake) =>
      Effect.gen(function* () {
        const { problems } = yield* planted(check, mistake)
        assert.isNotEmpty(problems)
      })
    )
  })
}
