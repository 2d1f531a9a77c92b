import { readdirSync, readFileSync, writeFileSync } from "node:fs"

const ticksPerSecond = 100

/** The fields of /proc/PID/stat after the name of the process. */
const statOf = (pid: number) =>
  readFileSync(`/proc/${pid}/stat`, "utf8")
    .replace(/^.*\) /s, "")
    .split(" ")

/** User and system time of a process and of its children that have ended, in microseconds. */
const cpuOf = (pid: number): number => {
  const ticks = statOf(pid)
    .slice(11, 15)
    .reduce((sum, field) => sum + Number(field), 0)
  return (ticks * 1_000_000) / ticksPerSecond
}

const parentOf = (pid: number): number => Number(statOf(pid)[1])

const whileItLives = (measure: () => number): number => {
  try {
    return measure()
  } catch {
    return 0
  }
}

const pidsOfTree = (root: number): ReadonlyArray<number> => {
  const pids = readdirSync("/proc").map(Number).filter(Number.isInteger)
  const children = Map.groupBy(pids, (pid) => whileItLives(() => parentOf(pid)))
  const walk = (pid: number): ReadonlyArray<number> => [pid, ...(children.get(pid) ?? []).flatMap(walk)]
  return walk(root)
}

/** CPU time of a process and its descendants, in microseconds. */
export const cpuOfTree = (root: number): number =>
  pidsOfTree(root).reduce((sum, pid) => sum + whileItLives(() => cpuOf(pid)), 0)

/** Resets the peak memory of a process. */
export const resetPeakMemory = (root: number): void => {
  for (const pid of pidsOfTree(root)) writeFileSync(`/proc/${pid}/clear_refs`, "5")
}

/** Peak resident memory of a process and its descendants, in MiB. */
export const peakMemory = (root: number): number =>
  pidsOfTree(root).reduce((sum, pid) => {
    const peak = whileItLives(() => Number(/VmHWM:\s+(\d+)/.exec(readFileSync(`/proc/${pid}/status`, "utf8"))?.[1]))
    return sum + peak / 1024
  }, 0)
