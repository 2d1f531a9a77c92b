import { parseArgs } from "node:util"
import { Cause, Effect, Exit } from "effect"
import { Skipped } from "../support/process/installedPrograms.ts"
import { type Check, planted, shipped } from "./Check.ts"
import { checks } from "./checks.ts"

const { values } = parseArgs({ options: { only: { type: "string" } } })
const wanted = values.only?.split(",")
const chosen = checks.filter(({ piece }) => wanted === undefined || wanted.some((word) => piece.includes(word)))
if (chosen.length === 0) {
  console.error(`--only takes parts of these names: ${checks.map(({ piece }) => piece).join(", ")}`)
  process.exit(2)
}

/** An interrupted check leaves no program behind. */
const interrupted = new AbortController()
for (const signal of ["SIGINT", "SIGTERM"] as const) process.once(signal, () => interrupted.abort())

/** The piece as it is shipped, then with each mistake: a check that finds nothing wrong there sees nothing. */
const examine = (check: Check) =>
  Effect.gen(function* () {
    const { figures = [], problems } = yield* Effect.scoped(check.run(shipped))
    if (problems.length > 0) return { problems, figures }
    const overlooked = yield* Effect.filter(check.mistakes, (mistake) =>
      Effect.map(Effect.scoped(planted(check, mistake)), (found) => found.problems.length === 0)
    )
    return {
      problems: overlooked.map(({ file, instead }) => `overlooks ${JSON.stringify(instead)} in ${file}`),
      figures: [...figures, `planted mistakes found: ${check.mistakes.length}`]
    }
  })

let failed = 0
for (const check of chosen) {
  const exit = await Effect.runPromiseExit(examine(check), { signal: interrupted.signal })
  if (Exit.isSuccess(exit) && exit.value.problems.length === 0) {
    console.log(`ok       ${check.piece}: ${exit.value.figures.join(", ")}`)
    continue
  }
  const failure = Exit.isFailure(exit) ? Cause.squash(exit.cause) : undefined
  if (failure instanceof Skipped) {
    console.log(`skipped  ${check.piece}: ${failure.why}`)
    continue
  }
  failed += 1
  const problems = Exit.isSuccess(exit) ? exit.value.problems : [Cause.pretty(exit.cause)]
  console.log(`failed   ${check.piece}: ${problems.join("\n         ")}`)
}
process.exit(failed > 0 || interrupted.signal.aborted ? 1 : 0)
