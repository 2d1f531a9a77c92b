import { mkdtempSync, openSync, readFileSync, rmSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { onBed } from "../Bed.ts"
import { loadOn, put } from "../Load.ts"
import { medianOf } from "../Report.ts"
import { peakMemory, resetPeakMemory } from "../Process.ts"
import { service, startTarget } from "../Target.ts"

/**
 * How often a request at one connection meets a collection of the young generation, by its bound in MiB. One request in
 * a hundred or more makes the collection the p99.
 */
const bounds = [8, 16, 32, 64]
const operations = ["get", "create"] as const
const seconds = Number(process.argv[2] ?? 5)

onBed("scavenges", 1000, async (bed) => {
  const folder = mkdtempSync(join(tmpdir(), "byok-scavenges-"))
  console.log(
    "| bound, MiB | operation | requests | met a collection | its median, ms | longest | p50, ms | p99, ms | peak MiB |"
  )
  console.log("|---:|---|---:|---:|---:|---:|---:|---:|---:|")
  for (const bound of bounds) {
    const log = join(folder, `${bound}.log`)
    const options = [`--max-semi-space-size=${bound}`, "--trace-gc"]
    const program = { ...service, arguments: [...options, ...service.arguments] }
    const target = await startTarget(program, bed, openSync(log, "w"))
    for (const operation of operations) {
      const load = loadOn(bed, target.url, { operation, connections: 1, seconds })
      await put({ ...load, seconds: 3 })
      const before = readFileSync(log, "utf8").length
      resetPeakMemory(target.pid)
      const { p50, p99, requests } = await put(load)
      const pauses = Array.from(
        readFileSync(log, "utf8")
          .slice(before)
          .matchAll(/: Scavenge .*? ([\d.]+) \/ [\d.]+ ms /g),
        ([, pause]) => Number(pause)
      )
      const share = `${((100 * pauses.length) / requests).toFixed(2)} %`
      const figures = [medianOf(pauses), Math.max(...pauses), p50, p99].map((figure) => figure.toFixed(2))
      const memory = peakMemory(target.pid).toFixed(0)
      console.log(`| ${[bound, operation, requests, share, ...figures, memory].join(" | ")} |`)
    }
    await target.stop()
  }
  rmSync(folder, { recursive: true })
})
