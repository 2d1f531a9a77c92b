import type { Worker } from "node:cluster"
import { Effect, Layer, Option } from "effect"
import { ServiceUnavailable } from "../domain/Errors.ts"
import { snapshotOf } from "../telemetry/Snapshot.ts"
import { askWorker } from "./askWorker.ts"
import { makeSum } from "./makeSum.ts"
import { type Condition, Management, type Reloaded, ReloadRefused } from "./Management.ts"

/** The processes that this one has started. */
export interface Processes {
  /** How many there should be. */
  readonly wanted: number
  /** Those that serve now. */
  readonly serving: () => ReadonlyArray<Worker>
  /** Makes those that are starting reload the keyring once they serve. */
  readonly reloadStarting: () => void
}

const snapshotTimeout = "1 second"
const conditionTimeout = "5 seconds"
const reloadTimeout = "10 seconds"

const silent = "a process does not answer"

const conditionOf = (found: ReadonlyArray<Option.Option<Condition>>, wanted: number): Condition => {
  const known = found.flatMap(Option.toArray)
  const problems = [
    ...(found.length === 0 ? ["no process is serving"] : []),
    ...(known.length < found.length ? [silent] : []),
    ...known.flatMap(({ problems }) => problems)
  ]
  const warnings = [
    ...(found.length < wanted ? [`processes that serve: ${found.length} of ${wanted}`] : []),
    ...known.flatMap(({ warnings }) => warnings)
  ]
  return { problems: Array.from(new Set(problems)), warnings: Array.from(new Set(warnings)) }
}

/** Manages all processes together, from the one that started them. */
export const layer = ({ reloadStarting, serving, wanted }: Processes) =>
  Layer.effect(
    Management,
    Effect.gen(function* () {
      const context = yield* Effect.context()
      const sum = makeSum()
      const ask = <A>(one: (worker: Worker) => Effect.Effect<A>) =>
        Effect.suspend(() => Effect.forEach(serving(), one, { concurrency: "unbounded" }))
      return {
        snapshot: Effect.map(
          ask((worker) =>
            Effect.map(askWorker(worker, "snapshot", snapshotTimeout), (found) => [worker, found] as const)
          ),
          (found) => sum(found, snapshotOf(context))
        ),
        condition: Effect.map(
          ask((worker) => askWorker(worker, "condition", conditionTimeout)),
          (found) => conditionOf(found, wanted)
        ),
        reload: Effect.suspend(() => {
          reloadStarting()
          return ask((worker) => askWorker(worker, "reload", reloadTimeout))
        }).pipe(
          Effect.flatMap((found): Effect.Effect<Reloaded, ReloadRefused | ServiceUnavailable> => {
            const answers = found.map(Option.getOrElse(() => silent))
            const processes = answers.length
            const reloaded = answers.filter((answer) => Array.isArray(answer))
            const reason = answers.find((answer) => typeof answer === "string")
            const [kek_ids] = reloaded
            if (reason !== undefined) {
              return Effect.fail(new ReloadRefused({ reason, reloaded: reloaded.length, processes }))
            }
            return reloaded.length < processes || kek_ids === undefined
              ? Effect.fail(new ServiceUnavailable())
              : Effect.succeed({ kek_ids, processes })
          })
        )
      }
    })
  )
