import { randomBytes } from "node:crypto"
import { loadavg } from "node:os"
import { parseArgs } from "node:util"
import { makeBed, startPostgres } from "../Bed.ts"
import { measureCell } from "../Cell.ts"
import { collector } from "../Collector.ts"
import { generator } from "../Load.ts"
import { ratiosOf } from "../Report.ts"
import { startTarget, type Target } from "../Target.ts"

/** What traces cost: the service without them, with all of them, and with one in ten, in turns on one database. */
const { values } = parseArgs({
  options: {
    rounds: { type: "string", default: "5" },
    seconds: { type: "string", default: "2" },
    connections: { type: "string", default: "1,64" }
  }
})

const keyring = `kek-service:${randomBytes(32).toString("base64")}`
const postgres = await startPostgres()
const bed = await makeBed(postgres, "traces", 1000)
const traces = await collector()
const open: Array<Target> = []
try {
  const to = { OTEL_EXPORTER_OTLP_TRACES_ENDPOINT: traces.url }
  const variants = {
    untraced: {},
    traced: to,
    "one in ten": { ...to, OTEL_TRACES_SAMPLER: "traceidratio", OTEL_TRACES_SAMPLER_ARG: "0.1" }
  }
  for (const [name, variables] of Object.entries(variants)) {
    const environment = { BYOK_KEYRING: keyring, LOG_LEVEL: "error", ...variables }
    open.push(await startTarget({ name, arguments: ["dist/bin.js", "serve"], environment }, bed))
  }
  const [rounds, seconds] = [Number(values.rounds), Number(values.seconds)]
  await measureCell(open, undefined, { operation: "get", connections: 64, rounds: 2, seconds })
  const cells = []
  for (const connections of values.connections.split(",").map(Number)) {
    for (const operation of ["get", "create"] as const) {
      cells.push(await measureCell(open, undefined, { operation, connections, rounds, seconds }))
    }
  }
  console.log(
    `${rounds} rounds of ${seconds} s, load by ${generator}, load average ${loadavg()
      .map((load) => load.toFixed(1))
      .join(", ")}`
  )
  for (const name of ["traced", "one in ten"]) {
    console.log(`\nRatios of "${name}" to the service without traces, of the same rounds:\n`)
    console.log(ratiosOf(cells, name, "untraced"))
  }
} finally {
  for (const target of open) await target.stop()
  traces.close()
  await bed.client.end()
  await postgres.stop()
}
process.exit()
