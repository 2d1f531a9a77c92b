import { parseArgs } from "node:util"
import { Worker } from "node:worker_threads"
import * as NodeRuntime from "@effect/platform-node/NodeRuntime"
import { Duration, Effect, Layer, Logger, Redacted } from "effect"
import { HttpServer } from "effect/http"
import * as Server from "../../../src/http/Server.ts"
import { RequestTimeout } from "../../../src/port/Deadline.ts"
import { Readiness } from "../../../src/port/Readiness.ts"
import * as Explanations from "../../../src/service/routing/Explanations.ts"
import { Accounts } from "../../../src/service/Accounts.ts"
import { serverSettings } from "../../support/database/freshDatabase.ts"
import { inMemory } from "../../support/memory/inMemory.ts"
import { medianOf } from "../Report.ts"
import { bodyOf, nameOf, plainRecipes, randomFrom, type Recipe, vary } from "./Bodies.ts"

const { values } = parseArgs({
  options: { rounds: { type: "string", default: "20" }, seed: { type: "string", default: "1" } }
})
const random = randomFrom(Number(values.seed))
const repeats = 5
const survivors = 10

/** Milliseconds for which the loop did not turn, on the clock and of this thread's CPU, at worst since the last call. */
const watchLoop = () => {
  let [clock, cpu] = [0, 0]
  let running = true
  let [lastClock, lastCpu] = [performance.now(), process.threadCpuUsage()]
  const turn = () => {
    const [now, used] = [performance.now(), process.threadCpuUsage(lastCpu)]
    clock = Math.max(clock, now - lastClock)
    cpu = Math.max(cpu, (used.user + used.system) / 1000)
    ;[lastClock, lastCpu] = [now, process.threadCpuUsage()]
    if (running) setImmediate(turn)
  }
  turn()
  return {
    worst: () => {
      const found = { clock, cpu }
      ;[clock, cpu] = [0, 0]
      return found
    },
    stop: () => (running = false)
  }
}

interface Measured {
  readonly recipe: Recipe
  readonly status: number
  readonly clock: number
  readonly cpu: number
}

const search = Effect.gen(function* () {
  const { address } = yield* HttpServer.HttpServer
  const { management_key } = yield* (yield* Accounts).createAccount("bodies")
  const workerData = { url: HttpServer.formatAddress(address), token: Redacted.value(management_key) }
  const worker = new Worker(new URL("Client.ts", import.meta.url), { workerData })
  const loop = watchLoop()

  const send = (body: Buffer) =>
    Effect.callback<number>((resume) => {
      worker.once("message", (status: number) => resume(Effect.succeed(status)))
      worker.postMessage(body)
    })
  const measure = Effect.fnUntraced(function* (recipe: Recipe) {
    const body = bodyOf(recipe)
    const stalls: Array<{ readonly clock: number; readonly cpu: number }> = []
    let status = 0
    for (let repeat = 0; repeat < repeats; repeat++) {
      loop.worst()
      status = yield* send(body)
      stalls.push(loop.worst())
    }
    const median = (figure: "clock" | "cpu") => medianOf(stalls.map((stall) => stall[figure]))
    return { recipe, status, clock: median("clock"), cpu: median("cpu") } satisfies Measured
  })

  for (const recipe of plainRecipes.slice(0, 20)) yield* measure(recipe)
  const slowest = (found: ReadonlyArray<Measured>) => found.toSorted((a, b) => b.cpu - a.cpu).slice(0, survivors)
  let best = slowest(yield* Effect.forEach(plainRecipes, measure))
  for (let round = 0; round < Number(values.rounds); round++) {
    const varied = best.flatMap(({ recipe }) => [vary(random, recipe), vary(random, vary(random, recipe))])
    best = slowest([...best, ...(yield* Effect.forEach(varied, measure))])
  }
  // Measured again, so that the slowest is not the one that was disturbed most.
  best = slowest(yield* Effect.forEach(best, ({ recipe }) => measure(recipe)))
  console.log("Longest turn of the event loop for one body of at most 256 KiB, medians of 5:")
  console.log("   CPU ms  clock ms  status  body")
  for (const { clock, cpu, recipe, status } of best) {
    const figures = [cpu.toFixed(1).padStart(9), clock.toFixed(1).padStart(9), String(status).padStart(7)]
    console.log(`${figures.join(" ")}  ${nameOf(recipe)}`)
  }
  loop.stop()
  yield* Effect.promise(() => worker.terminate())
})

search.pipe(
  Effect.provide(
    Server.layer(serverSettings).pipe(
      Layer.provideMerge(Accounts.layer),
      Layer.provide(Explanations.layer),
      Layer.provideMerge(inMemory()),
      Layer.provideMerge(Layer.succeed(Readiness, { problems: Effect.succeed([]), warnings: Effect.succeed([]) })),
      Layer.provideMerge(Layer.succeed(RequestTimeout, Duration.seconds(30))),
      Layer.provide(Logger.layer([]))
    )
  ),
  NodeRuntime.runMain
)
