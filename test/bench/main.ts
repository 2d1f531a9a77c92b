import { once } from "node:events"
import { mkdirSync, mkdtempSync, openSync, rmSync, writeFileSync } from "node:fs"
import { createServer } from "node:http"
import type { AddressInfo } from "node:net"
import { tmpdir } from "node:os"
import { dirname, join } from "node:path"
import { parseArgs } from "node:util"
import { type Bed, makeBed, onPostgres } from "./Bed.ts"
import { type Cell, measureCell } from "./Cell.ts"
import { measureGrowth } from "./Growth.ts"
import { inProcess } from "./InProcess.ts"
import { generator, type Operation } from "./Load.ts"
import { hasPgbench } from "./Pgbench.ts"
import { leanGateway, measureGateways, ownGateway } from "./gateway/Gateway.ts"
import { measureLadder } from "./ladder/Ladder.ts"
import { measureLife } from "./Life.ts"
import { gatewayTableOf, growthTableOf, ladderTableOf, medianOf, ratiosOf, tableOf } from "./Report.ts"
import { pictureOf } from "./Picture.ts"
import { sealing } from "./Sealing.ts"
import { builtIn, keyring, type Program, startTarget, type Target } from "./Target.ts"

const { values } = parseArgs({
  options: {
    quick: { type: "boolean", default: false },
    rounds: { type: "string" },
    seconds: { type: "string" },
    connections: { type: "string" },
    operations: { type: "string" },
    /** What to measure, by default everything. */
    only: { type: "string" },
    /** Another checkout of the service, built, to be measured in the same turns. */
    beside: { type: "string" },
    picture: { type: "string", default: "test/bench/results/latest.svg" }
  }
})
const { quick } = values
const only = values.only?.split(",")
const measures = (part: "cells" | "life" | "gateway" | "ladder" | "levers" | "observed" | "growth") =>
  only?.includes(part) ?? (!quick || !["levers", "observed", "growth"].includes(part))
const rounds = Number(values.rounds ?? (quick ? 2 : 5))
const seconds = Number(values.seconds ?? 1)
const connections = (values.connections ?? (quick ? "1,64" : "1,16,64,256")).split(",").map(Number)
const operations = (values.operations ?? "get,create").split(",") as ReadonlyArray<Operation>
const smallest = 1_000

const service = builtIn(".")
const fastify: Program = { name: "fastify", arguments: ["test/bench/peers/fastify.ts"] }
const lean: Program = { name: "lean", arguments: ["test/bench/peers/lean.ts"] }
/** The contenders beside the lean peer. */
const others: ReadonlyArray<Program> = values.beside === undefined ? [fastify] : [builtIn(values.beside, "beside")]

const withSettings = (name: string, settings: Record<string, string>): Program => ({
  ...service,
  name,
  environment: { ...service.environment, ...settings }
})

/** The service with one setting changed at a time. */
const leversOf = (tracesTo: string): ReadonlyArray<Program> => [
  withSettings("with traces", { OTEL_EXPORTER_OTLP_ENDPOINT: tracesTo })
]

/** The service with its access log, with traces of a tenth of its requests, and with both. */
const observedOf = (tracesTo: string): ReadonlyArray<Program> => {
  const logs = { ACCESS_LOG: "true", LOG_FORMAT: "json", LOG_LEVEL: "info" }
  const traces = {
    OTEL_EXPORTER_OTLP_ENDPOINT: tracesTo,
    OTEL_METRICS_EXPORTER: "none",
    OTEL_TRACES_SAMPLER: "parentbased_traceidratio",
    OTEL_TRACES_SAMPLER_ARG: "0.1"
  }
  return [
    withSettings("logged", logs),
    withSettings("traced", traces),
    withSettings("logged and traced", { ...logs, ...traces })
  ]
}

const say = (text: string) => {
  console.log(`\n${text}`)
}

const startUps = async (bed: Bed) => {
  const times: Record<string, Array<number>> = {}
  for (let round = 0; round < rounds; round += 1) {
    for (const program of [service, fastify, lean]) {
      const target = await startTarget(program, bed)
      ;(times[program.name] ??= []).push(target.startup)
      await target.stop()
    }
  }
  return Object.fromEntries(Object.entries(times).map(([name, each]) => [name, medianOf(each)]))
}

const measureAll = async (targets: ReadonlyArray<Target>, direct: Bed | undefined, at: ReadonlyArray<number>) => {
  const cells: Array<Cell> = []
  for (const operation of operations) {
    for (const count of at) {
      cells.push(await measureCell(targets, direct, { operation, connections: count, rounds, seconds }))
      console.error(`measured ${operation} at ${count} connections`)
    }
  }
  return cells
}

/** Lets every contender compile its hot paths before anything is measured, at one connection above all. */
const warmUp = async (targets: ReadonlyArray<Target>) => {
  for (const operation of operations) {
    await measureCell(targets, undefined, { operation, connections: 64, rounds: quick ? 1 : 3, seconds: 1 })
  }
}

onPostgres(async (postgres) => {
  const bed = await makeBed(postgres, "bench", smallest)

  const plain = await startTarget(service, bed)
  const leanPeer = await startTarget(lean, bed)
  const open = [plain, leanPeer]
  for (const program of others) open.push(await startTarget(program, bed))

  const cells: Array<Cell> = []
  if (measures("cells")) {
    await warmUp(open)
    cells.push(...(await measureAll(open, values.beside === undefined ? bed : undefined, connections)))
    say(`${rounds} rounds of ${seconds} s, load by ${generator}${hasPgbench ? "" : ", pgbench is not installed"}`)
    say(tableOf(cells, "lean"))
    for (const { name } of [...others, lean]) {
      say(`Ratios to ${name}, of the same rounds:`)
      say(ratiosOf(cells, "byok", name))
    }
  }

  const life: Array<Cell> = []
  if (measures("life")) {
    life.push(
      ...(await measureLife(
        open.filter(({ name }) => name !== fastify.name),
        connections,
        rounds,
        seconds
      ))
    )
    say("List (50 of them) and update beside the lean peer:")
    say(tableOf(life, "lean"))
  }

  const routed: Array<Cell> = []
  if (measures("gateway")) {
    routed.push(
      ...(await measureGateways(postgres, [ownGateway(service), leanGateway], {
        ...{ rounds, seconds },
        connections: connections.filter((count) => count <= 64)
      }))
    )
    say("Routed requests over a Unix socket, beside the lean peer (byok / lean, ratio):")
    say(gatewayTableOf(routed, "byok", "lean"))
  }

  const ladder = measures("ladder") ? await measureLadder(bed, quick ? 1 : 3, quick ? 1 : 2) : {}
  if (measures("ladder")) {
    say("The ladder of a get, CPU µs of Node per request at 64 connections:")
    say(ladderTableOf(ladder))
  }

  /** Measures programs that differ from the service in their settings, in the same turns. */
  const measureBeside = async (
    programsFor: (tracesTo: string) => ReadonlyArray<Program>,
    at: ReadonlyArray<number>,
    log?: number
  ) => {
    // A collector that discards all traces.
    const traces = createServer((request, response) => {
      request.resume().once("end", () => response.writeHead(200, { "content-type": "application/json" }).end("{}"))
    })
    await once(traces.listen(0, "127.0.0.1"), "listening")
    const otherwise: Array<Target> = []
    for (const program of programsFor(`http://127.0.0.1:${(traces.address() as AddressInfo).port}`))
      otherwise.push(await startTarget(program, bed, "ignore", log))
    await warmUp([plain, ...otherwise])
    const measured = await measureAll([plain, ...otherwise], undefined, at)
    for (const target of otherwise) await target.stop()
    traces.close()
    return measured
  }

  const levers = measures("levers") ? await measureBeside(leversOf, [1, 64]) : []
  if (measures("levers")) {
    say("Each lever alone:")
    say(tableOf(levers, "byok"))
  }

  const observed: Array<Cell> = []
  if (measures("observed")) {
    const directory = mkdtempSync(join(tmpdir(), "byok-bench-log-"))
    observed.push(...(await measureBeside(observedOf, [64], openSync(join(directory, "log"), "a"))))
    rmSync(directory, { recursive: true })
    say("With the access log, as json in a file, and traces of a tenth of the requests:")
    say(tableOf(observed, "byok"))
  }

  const growth = measures("growth") ? await measureGrowth(postgres, service, bed, { rounds, seconds }) : []
  if (measures("growth")) say(growthTableOf(growth))

  if (only === undefined) {
    const started = await startUps(bed)
    say(
      `Start-up to the first 200, ms: ${Object.entries(started)
        .map(([name, ms]) => `${name} ${ms.toFixed(0)}`)
        .join(", ")}`
    )
    const sealed = sealing(seconds)
    const inside = await inProcess(bed, keyring, seconds)
    say(`Sealing: ${sealed.seal.toFixed(0)}/s, opening: ${sealed.open.toFixed(0)}/s`)
    say(`In process, 64 at a time: get ${inside.get.toFixed(0)}/s, create ${inside.create.toFixed(0)}/s`)

    mkdirSync("test/bench/results", { recursive: true })
    const run = { date: new Date(), node: process.version, generator, rounds, seconds }
    const result = { ...run, started, cells, levers, observed, growth, life, routed, ladder, sealed, inside }
    writeFileSync("test/bench/results/latest.json", JSON.stringify(result, null, 1))
    say("Every figure of every round is in test/bench/results/latest.json")
  }
  if (measures("cells") && measures("gateway")) {
    mkdirSync(dirname(values.picture), { recursive: true })
    writeFileSync(values.picture, pictureOf([...cells, ...routed]))
    say(`${values.picture} draws gets, creates and routed requests`)
  }
  for (const target of open) await target.stop()
  await bed.client.end()
})
