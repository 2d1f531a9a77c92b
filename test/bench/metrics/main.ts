import { randomBytes } from "node:crypto"
import { loadavg } from "node:os"
import { join } from "node:path"
import { Effect } from "effect"
import { makeBed, startPostgres } from "../Bed.ts"
import { put } from "../Load.ts"
import { cpuOfTree } from "../Process.ts"
import { medianOf } from "../Report.ts"
import { startTarget } from "../Target.ts"
import { perGet } from "./perGet.ts"

console.log(`the meters of a get alone take ${(await Effect.runPromise(perGet)).toFixed(2)} µs of CPU`)

/**
 * What metrics cost a get: CPU of Node.js per request with them and without, in turns, at one and at 64 connections. The
 * order of a pair changes with each round. `npm run bench:metrics -- ROUNDS SECONDS`.
 */
const [rounds = 9, seconds = 3] = process.argv.slice(2).map(Number)
const without = join(import.meta.dirname, "withoutMetrics.ts")
const environment = {
  BYOK_KEYRING: `kek-service:${randomBytes(32).toString("base64")}`,
  LOG_LEVEL: "error"
}

const postgres = await startPostgres()
const bed = await makeBed(postgres, "metrics", 1000)
const serve = ["src/bin.js", "serve"]
const measured = await startTarget(
  { name: "with", arguments: serve, environment: { ...environment, BYOK_MANAGEMENT_PORT: "0" } },
  bed
)
const unmeasured = await startTarget({ name: "without", arguments: ["--import", without, ...serve], environment }, bed)
try {
  for (const connections of [1, 64]) {
    const ratios: Array<number> = []
    const cpu = { with: [] as Array<number>, without: [] as Array<number> }
    for (let round = -1; round < rounds; round++) {
      const pair = round % 2 === 0 ? [measured, unmeasured] : [unmeasured, measured]
      const costs = new Map<string, number>()
      for (const { name, pid, url } of pair) {
        const before = cpuOfTree(pid)
        const { requests } = await put({
          operation: "get",
          url,
          key: bed.key,
          connections,
          seconds,
          seeded: bed.seeded,
          ids: []
        })
        costs.set(name, (cpuOfTree(pid) - before) / requests)
      }
      // The first pair warms up.
      if (round < 0) continue
      const [one = Number.NaN, other = Number.NaN] = [costs.get("with"), costs.get("without")]
      cpu.with.push(one)
      cpu.without.push(other)
      ratios.push(one / other)
    }
    const sorted = ratios.toSorted((one, other) => one - other)
    console.log(
      `${connections} connections: ${medianOf(cpu.with).toFixed(1)} µs of CPU per get with metrics, ${medianOf(cpu.without).toFixed(1)} without; ` +
        `ratio of each pair: median ${medianOf(ratios).toFixed(3)}, from ${sorted.at(0)?.toFixed(3)} to ${sorted.at(-1)?.toFixed(3)}; ` +
        `load of the machine ${loadavg()[0]?.toFixed(1)}`
    )
  }
} finally {
  await measured.stop()
  await unmeasured.stop()
  await bed.client.end()
  await postgres.stop()
}
process.exit()
