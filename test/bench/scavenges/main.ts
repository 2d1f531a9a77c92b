import { randomBytes } from "node:crypto"
import { mkdtempSync, openSync, readFileSync, rmSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { makeBed, startPostgres } from "../Bed.ts"
import { put } from "../Load.ts"
import { medianOf } from "../Report.ts"
import { peakMemory, resetPeakMemory } from "../Process.ts"
import { startTarget } from "../Target.ts"

/**
 * How often a request at one connection meets a collection of the young generation, by its bound in MiB. One request in
 * a hundred or more makes the collection the p99.
 */
const bounds = [8, 16, 32, 64]
const operations = ["get", "create"] as const
const seconds = Number(process.argv[2] ?? 5)

const keyring = `kek-service:${randomBytes(32).toString("base64")}`
const postgres = await startPostgres()
const bed = await makeBed(postgres, "scavenges", 1000)
const folder = mkdtempSync(join(tmpdir(), "byok-scavenges-"))
try {
  console.log(
    "| bound, MiB | operation | requests | met a collection | its median, ms | longest | p50, ms | p99, ms | peak MiB |"
  )
  console.log("|---:|---|---:|---:|---:|---:|---:|---:|---:|")
  for (const bound of bounds) {
    const log = join(folder, `${bound}.log`)
    const service = await startTarget(
      {
        name: "byok",
        arguments: [`--max-semi-space-size=${bound}`, "--trace-gc", "src/bin.js", "serve"],
        environment: { BYOK_KEYRING: keyring, LOG_LEVEL: "error" }
      },
      bed,
      openSync(log, "w")
    )
    for (const operation of operations) {
      const load = { operation, url: service.url, key: bed.key, connections: 1, seconds, seeded: bed.seeded, ids: [] }
      await put({ ...load, seconds: 3 })
      const before = readFileSync(log, "utf8").length
      resetPeakMemory(service.pid)
      const { p50, p99, requests } = await put(load)
      const pauses = Array.from(
        readFileSync(log, "utf8")
          .slice(before)
          .matchAll(/: Scavenge .*? ([\d.]+) \/ [\d.]+ ms /g),
        ([, pause]) => Number(pause)
      )
      const share = `${((100 * pauses.length) / requests).toFixed(2)} %`
      const figures = [medianOf(pauses), Math.max(...pauses), p50, p99].map((figure) => figure.toFixed(2))
      const memory = peakMemory(service.pid).toFixed(0)
      console.log(`| ${[bound, operation, requests, share, ...figures, memory].join(" | ")} |`)
    }
    await service.stop()
  }
} finally {
  rmSync(folder, { recursive: true })
  await bed.client.end()
  await postgres.stop()
}
process.exit()
