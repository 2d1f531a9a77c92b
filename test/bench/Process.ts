import { readdirSync, readFileSync, writeFileSync } from "node:fs"

const ticksPerSecond = 100

/** User and system time of a process and of its children that have ended, in microseconds. */
const cpuOf = (pid: number): number => {
  const fields = readFileSync(`/proc/${pid}/stat`, "utf8")
    .replace(/^.*\) /s, "")
    .split(" ")
  const ticks = fields.slice(11, 15).reduce((sum, field) => sum + Number(field), 0)
  return (ticks * 1_000_000) / ticksPerSecond
}

const parentOf = (pid: number): number =>
  Number(
    readFileSync(`/proc/${pid}/stat`, "utf8")
      .replace(/^.*\) /s, "")
      .split(" ")[1]
  )

const whileItLives = (measure: () => number): number => {
  try {
    return measure()
  } catch {
    return 0
  }
}

/** CPU time of a process and all that descend from it, in microseconds. */
export const cpuOfTree = (root: number): number => {
  const pids = readdirSync("/proc").map(Number).filter(Number.isInteger)
  const children = Map.groupBy(pids, (pid) => whileItLives(() => parentOf(pid)))
  const sum = (pid: number): number =>
    whileItLives(() => cpuOf(pid)) + (children.get(pid) ?? []).reduce((total, child) => total + sum(child), 0)
  return sum(root)
}

const pidsOfTree = (root: number): ReadonlyArray<number> => {
  const pids = readdirSync("/proc").map(Number).filter(Number.isInteger)
  const children = Map.groupBy(pids, (pid) => whileItLives(() => parentOf(pid)))
  const walk = (pid: number): ReadonlyArray<number> => [pid, ...(children.get(pid) ?? []).flatMap(walk)]
  return walk(root)
}

/** Forgets the peak memory of a process so far. */
export const resetPeakMemory = (root: number): void => {
  for (const pid of pidsOfTree(root)) writeFileSync(`/proc/${pid}/clear_refs`, "5")
}

/** The peak of resident memory of a process and all that descend from it, in MiB. */
export const peakMemory = (root: number): number =>
  pidsOfTree(root).reduce((sum, pid) => {
    const peak = whileItLives(() => Number(/VmHWM:\s+(\d+)/.exec(readFileSync(`/proc/${pid}/status`, "utf8"))?.[1]))
    return sum + peak / 1024
  }, 0)
