import { type Bed, sweep } from "./Bed.ts"
import { loadOn, type Operation, put, type Seen } from "./Load.ts"
import { hasPgbench, putDirectly } from "./Pgbench.ts"
import { cpuOfTree, peakMemory, resetPeakMemory } from "./Process.ts"
import type { Target } from "./Target.ts"

/** One round of one contender: what its clients saw and what it cost. CPU in microseconds per request, memory in MiB. */
export interface Round extends Seen {
  readonly rate: number
  readonly nodeCpu: number
  readonly postgresCpu: number
  readonly memory: number
}

export interface Plan {
  readonly operation: Operation
  readonly connections: number
  readonly seconds: number
  readonly rounds: number
}

/** All rounds of one operation at one number of connections, by contender. */
export interface Cell {
  readonly operation: Operation
  readonly connections: number
  readonly rounds: Readonly<Record<string, ReadonlyArray<Round>>>
}

const measure = async (bed: Bed, pid: number | undefined, load: () => Promise<Seen>): Promise<Round> => {
  const cpu = () => (pid === undefined ? 0 : cpuOfTree(pid))
  if (pid !== undefined) resetPeakMemory(pid)
  const before = { node: cpu(), postgres: cpuOfTree(bed.postmaster) }
  const seen = await load()
  const after = { node: cpu(), postgres: cpuOfTree(bed.postmaster) }
  return {
    ...seen,
    rate: seen.requests / seen.seconds,
    nodeCpu: pid === undefined ? Number.NaN : (after.node - before.node) / seen.requests,
    postgresCpu: (after.postgres - before.postgres) / seen.requests,
    memory: pid === undefined ? Number.NaN : peakMemory(pid)
  }
}

const warmUpSeconds = 1

/** Runs the contenders in turn, A B C A B C, which exposes all of them to changes of the machine's speed. */
export const measureCell = async (
  targets: ReadonlyArray<Target>,
  direct: Bed | undefined,
  { connections, operation, rounds, seconds }: Plan
): Promise<Cell> => {
  const results: Record<string, Array<Round>> = {}
  const note = async (name: string, bed: Bed, round: Round, counts: boolean) => {
    if (counts) (results[name] ??= []).push(round)
    if (operation === "create") await sweep(bed)
  }
  for (let round = -1; round < rounds; round += 1) {
    const given = { operation, connections, seconds: round < 0 ? warmUpSeconds : seconds }
    for (const { bed, name, pid, url } of targets) {
      await note(name, bed, await measure(bed, pid, () => put(loadOn(bed, url, given))), round >= 0)
    }
    if (hasPgbench && direct !== undefined) {
      const load = () => putDirectly(direct, loadOn(direct, "", given))
      await note("pgbench", direct, await measure(direct, undefined, load), round >= 0)
    }
  }
  return { operation, connections, rounds: results }
}
