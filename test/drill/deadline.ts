import { setTimeout } from "node:timers/promises"
import { Effect } from "effect"
import type { Findings } from "./Row.ts"

/** DATABASE_DEADLINE unless it is set, in milliseconds. */
export const deadline = 3_000

/** Milliseconds that scheduling on a busy machine may add to an answer. */
export const margin = 1_000

export const pause = (milliseconds: number) => Effect.promise(() => setTimeout(milliseconds))

/** Requires that every answer was 201 or 500 and arrived by the deadline. */
export const showAnswers = (findings: Findings): void => {
  const { slowest, unknown } = findings.ledger
  findings.show(`slowest answer ${slowest.toFixed(0)} ms`)
  findings.expect(slowest < deadline + margin, `an answer came after the deadline of ${deadline} ms`)
  const statuses = Map.groupBy(unknown, ({ status }) => status ?? "no answer")
  findings.show(`failures ${Array.from(statuses, ([status, all]) => `${status}: ${all.length}`).join(", ") || "none"}`)
  findings.expect(!statuses.has("no answer"), "a request was not answered")
}
