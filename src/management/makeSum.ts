import { Option } from "effect"
import { mergeSnapshots, remainsOf } from "../telemetry/mergeSnapshots.ts"
import type { Snapshot } from "../telemetry/Snapshot.ts"

/** A process as far as its end is noticed. */
interface Mortal {
  readonly isDead: () => boolean
  readonly once: (event: "exit", ended: () => void) => unknown
}

/**
 * Makes what adds up the series of all processes. What one has counted stays counted when it ends or does not answer, as
 * far as it was read: a sum that shrank would look like a restart of all.
 */
export const makeSum = () => {
  const last = new Map<Mortal, Snapshot>()
  let remains: Snapshot = []
  const keep = (process: Mortal) =>
    process.once("exit", () => {
      remains = mergeSnapshots([remains, remainsOf(last.get(process) ?? [])])
      last.delete(process)
    })
  return (found: ReadonlyArray<readonly [Mortal, Option.Option<Snapshot>]>, own: Snapshot): Snapshot => {
    const answered = new Set<Mortal>()
    for (const [process, snapshot] of found) {
      if (Option.isNone(snapshot) || process.isDead()) continue
      if (!last.has(process)) keep(process)
      last.set(process, snapshot.value)
      answered.add(process)
    }
    const each = Array.from(last, ([process, snapshot]) => (answered.has(process) ? snapshot : remainsOf(snapshot)))
    return mergeSnapshots([own, remains, ...each])
  }
}
