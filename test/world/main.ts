import { execFileSync } from "node:child_process"
import { parseArgs } from "node:util"
import { availableParallelism } from "node:os"
import { isMainThread, parentPort, Worker, workerData } from "node:worker_threads"
import { faults, known, seldom } from "./faults.ts"
import { historyOf } from "./History.ts"
import { plantedWorld } from "./planted.ts"
import { reportOf } from "./shrink.ts"
import type { Counts } from "./Scene.ts"
import { World } from "./World.ts"

/** Seeds that are run before figures are told again. */
const part = 1000

interface Part {
  readonly counts: Record<string, number>
  readonly broken: ReadonlyArray<number>
}

const runPart = (from: number, until: number): Part => {
  const counts: Record<string, number> = {}
  const broken: Array<number> = []
  for (let seed = from; seed < until; seed += 1) {
    const world = new World(historyOf(seed))
    if (world.run() !== undefined) broken.push(seed)
    const more: Counts = world.counts
    for (const [name, n] of Object.entries<number>({ ...more })) counts[name] = (counts[name] ?? 0) + n
  }
  return { counts, broken }
}

const { values } = parseArgs({
  options: {
    seeds: { type: "string", default: "2000" },
    from: { type: "string", default: "1" },
    jobs: { type: "string", default: "1" },
    planted: { type: "boolean", default: false }
  }
})

const runPlanted = async (most: number) => {
  for (const { edit, fault, law } of faults) {
    const { brokenIn } = await plantedWorld([edit])
    let seed = 1
    while (seed <= most && brokenIn(historyOf(seed)) === undefined) seed += 1
    const later = known[fault] === undefined ? seldom : [historyOf(known[fault]), ...seldom]
    const isSeldom = seed > most && later.some((history) => brokenIn(history) !== undefined)
    console.log(`${seed <= most ? seed : isSeldom ? "seldom" : "never"}\t${fault}\t${law}`)
    if (seed > most && !isSeldom) process.exitCode = 1
  }
}

const runSeeds = async (from: number, count: number, jobs: number) => {
  const began = performance.now()
  const sums: Record<string, number> = {}
  const broken: Array<number> = []
  let [next, done] = [from, 0]
  const ended = ({ broken: more, counts }: Part, seeds: number) => {
    done += seeds
    for (const [name, n] of Object.entries(counts)) sums[name] = (sums[name] ?? 0) + n
    for (const seed of more) {
      broken.push(seed)
      if (broken.length <= 3) console.log(reportOf(seed))
    }
    const seconds = (performance.now() - began) / 1000
    const rates = Object.entries(sums).map(([name, n]) => `${name} ${n} (${Math.round(n / seconds)}/s)`)
    console.log(
      `${done} seeds, ${Math.round(done / seconds)}/s; ${rates.join(", ")}; broken: ${broken.join(" ") || "none"}`
    )
  }
  const take = () => {
    const first = next
    next = Math.min(from + count, next + part)
    return [first, next] as const
  }
  const runWorker = () =>
    new Promise<void>((resolve, reject) => {
      const worker = new Worker(new URL(import.meta.url), { workerData: "seeds" })
      let taken = take()
      worker.on("error", reject)
      worker.on("message", (made: Part) => {
        ended(made, taken[1] - taken[0])
        taken = take()
        if (taken[0] === taken[1]) return void worker.terminate().then(() => resolve())
        worker.postMessage(taken)
      })
      worker.postMessage(taken)
    })
  if (jobs > 1) await Promise.all(Array.from({ length: Math.min(jobs, availableParallelism()) }, runWorker))
  else for (let taken = take(); taken[0] < taken[1]; taken = take()) ended(runPart(...taken), taken[1] - taken[0])
  if (broken.length > 0) {
    const commit = execFileSync("git", ["rev-parse", "--short", "HEAD"], { encoding: "utf8" }).trim()
    console.log(`broken at ${commit} by seeds ${broken.join(" ")}`)
    process.exitCode = 1
  }
}

if (!isMainThread && workerData === "seeds") {
  parentPort?.on("message", ([from, until]: readonly [number, number]) => parentPort?.postMessage(runPart(from, until)))
} else if (values.planted) await runPlanted(Number(values.seeds))
else await runSeeds(Number(values.from), Number(values.seeds), Number(values.jobs))
