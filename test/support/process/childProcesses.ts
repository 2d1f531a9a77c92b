import { readdirSync, readFileSync } from "node:fs"

/** The processes that this one has started and that still run, on Linux. */
export const childProcesses = (): ReadonlyArray<number> =>
  readdirSync("/proc/self/task").flatMap((thread) =>
    readFileSync(`/proc/self/task/${thread}/children`, "utf8")
      .split(" ")
      .filter((pid) => pid !== "")
      .map(Number)
  )
