import { type Bed, type Postgres, sweep } from "./Bed.ts"
import { loadOn, type Operation, put, type Seen } from "./Load.ts"
import { hasPgbench, putDirectly } from "./Pgbench.ts"
import { cpuOfTree, peakMemory, resetPeakMemory } from "./Process.ts"
import type { Target } from "./Target.ts"

/** The figures of one round of one contender: of its clients, CPU in microseconds per request, and memory in MiB. */
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
  readonly operation: Operation | "route" | "chat" | "lease"
  readonly connections: number
  readonly rounds: Readonly<Record<string, ReadonlyArray<Round>>>
}

/** A program that is put under load in turn with others. */
export interface Contender {
  readonly name: string
  readonly postgres: Pick<Postgres, "postmaster">
  /** Its processes; empty for a load on the database itself. */
  readonly pids: ReadonlyArray<number>
  readonly load: (seconds: number) => Promise<Seen>
  readonly after?: () => Promise<void>
}

const measure = async ({ load, name, pids, postgres }: Contender, seconds: number): Promise<Round> => {
  const sumOf = (figure: (pid: number) => number) =>
    pids.length === 0 ? Number.NaN : pids.reduce((sum, pid) => sum + figure(pid), 0)
  pids.forEach(resetPeakMemory)
  const before = { node: sumOf(cpuOfTree), postgres: cpuOfTree(postgres.postmaster) }
  const seen = await load(seconds)
  const after = { node: sumOf(cpuOfTree), postgres: cpuOfTree(postgres.postmaster) }
  if (seen.errors > seen.requests / 100) throw new Error(`${name} refused ${seen.errors} of ${seen.requests} requests`)
  return {
    ...seen,
    rate: seen.requests / seen.seconds,
    nodeCpu: (after.node - before.node) / seen.requests,
    postgresCpu: (after.postgres - before.postgres) / seen.requests,
    memory: sumOf(peakMemory)
  }
}

const warmUpSeconds = 1

/** Runs the contenders in turn, A B C A B C, which exposes all of them to changes of the machine's speed. */
export const inTurns = async (contenders: ReadonlyArray<Contender>, rounds: number, seconds: number) => {
  const results: Record<string, Array<Round>> = {}
  for (let round = -1; round < rounds; round += 1) {
    for (const contender of contenders) {
      const seen = await measure(contender, round < 0 ? warmUpSeconds : seconds)
      if (round >= 0) (results[contender.name] ??= []).push(seen)
      await contender.after?.()
    }
  }
  return results
}

export const measureCell = async (
  targets: ReadonlyArray<Target>,
  direct: Bed | undefined,
  { connections, operation, rounds, seconds }: Plan
): Promise<Cell> => {
  const contenders = targets.map(({ bed, name, pid, url }): Contender => ({
    ...{ name, postgres: bed, pids: [pid] },
    load: (seconds) => put(loadOn(bed, url, { operation, connections, seconds })),
    after: async () => {
      if (operation === "create") await sweep(bed)
    }
  }))
  if (hasPgbench && direct !== undefined) {
    const load = (seconds: number) => putDirectly(direct, loadOn(direct, "", { operation, connections, seconds }))
    const after = async () => {
      if (operation === "create") await sweep(direct)
    }
    contenders.push({ name: "pgbench", postgres: direct, pids: [], load, after })
  }
  return { operation, connections, rounds: await inTurns(contenders, rounds, seconds) }
}
