import { readdirSync, readFileSync } from "node:fs"

/** The workers of a service. */
export const workersOf = (parent: number): ReadonlyArray<number> =>
  readdirSync("/proc")
    .map(Number)
    .filter(Number.isInteger)
    .filter((pid) => {
      try {
        const [, ppid] = readFileSync(`/proc/${pid}/stat`, "utf8")
          .replace(/^.*\) /s, "")
          .split(" ")
        return Number(ppid) === parent && readFileSync(`/proc/${pid}/cmdline`, "utf8").endsWith("\0serve\0")
      } catch {
        return false
      }
    })
