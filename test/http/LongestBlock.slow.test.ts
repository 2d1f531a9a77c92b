import { monitorEventLoopDelay } from "node:perf_hooks"
import { Worker } from "node:worker_threads"
import { Effect } from "effect"
import { createdId, minimal } from "../support/http/Bodies.ts"
import { TestService } from "../support/http/TestService.ts"
import { assert, layerLive } from "../support/it.ts"

/** Milliseconds that the event loop may be blocked. */
const longest = 50

/** 100 models of 255 characters, of four bytes each: 100 kB. */
const models = Array.from({ length: 100 }, (_, n) => "😀".repeat(252) + String(n).padStart(3, "0"))

/** Runs an effect, and returns for how many milliseconds one turn of the event loop took at most. */
const longestTurn = <A, E, R>(effect: Effect.Effect<A, E, R>) =>
  Effect.gen(function* () {
    const delay = monitorEventLoopDelay({ resolution: 1 })
    delay.enable()
    // The monitor compares its own turns: it has one before and one after.
    yield* Effect.sleep(20)
    yield* effect
    yield* Effect.sleep(20)
    delay.disable()
    return delay.max / 1e6
  })

/** The least of some runs: what else runs on the machine blocks too, but not each time. */
const least = <A, E, R>(runs: number, run: Effect.Effect<A, E, R>) =>
  Effect.map(Effect.replicateEffect(longestTurn(run), runs), (turns) => Math.min(...turns))

/** Reads a page in a thread of its own, and returns how many bytes it has. */
const listElsewhere = Effect.acquireRelease(
  Effect.sync(() => {
    const program = `require("node:worker_threads").parentPort.on("message", async function ([url, key]) {
      const answer = await fetch(url, { headers: { authorization: "Bearer " + key } })
      this.postMessage((await answer.bytes()).length)
    })`
    return new Worker(program, { eval: true })
  }),
  (worker) => Effect.promise(() => worker.terminate())
).pipe(
  Effect.map(
    (worker) => (url: string, key: string) =>
      Effect.callback<number>((resume) => {
        worker.once("message", (bytes: number) => resume(Effect.succeed(bytes)))
        worker.postMessage([url, key])
      })
  )
)

layerLive(TestService.layer, { timeout: "240 seconds" })("one turn of the event loop (T9)", (it) => {
  it.effect("takes at most 50 ms to list 100 credentials with 100 kB each over HTTP", function* () {
    const tenant = yield* TestService.newTenant
    const { url } = yield* TestService
    const providers = ["cohere", "anthropic", "mistral"]
    yield* Effect.forEach(
      Array.from({ length: 100 }, (_, n) => providers[n % providers.length]),
      (provider) => Effect.map(tenant.create({ ...minimal, provider, allowed_models: models }), createdId),
      { concurrency: 4 }
    )
    const list = (yield* listElsewhere)(`${url}/api/v1/byok?limit=100`, tenant.management_key)
    assert.isAbove(yield* list, 10_000_000, "control: the bytes of the list")
    assert.isAtMost(yield* least(5, list), longest)
  })

  it.effect("takes at most 50 ms for a plan over 1,000 credentials that were not read before", function* () {
    const tenant = yield* TestService.newTenant
    yield* Effect.forEach(Array.from({ length: 1000 }), () => tenant.create(minimal), { concurrency: 8 })
    const other = createdId(yield* tenant.create(minimal))
    const body = JSON.stringify({ model: "a/model", targets: [{ provider: minimal.provider }] })
    const cold = Effect.gen(function* () {
      const { sql } = yield* TestService
      yield* Effect.orDie(sql`UPDATE credentials SET revision = revision + 1 WHERE account_id = ${tenant.account_id}`)
      yield* tenant.update(other, { name: String(Math.random()) })
      const headers = [["content-type", "application/json"]] as const
      const { status } = yield* tenant.send({ method: "POST", path: "/api/v1/byok/plan", headers, body })
      assert.strictEqual(status, 200)
    })
    yield* cold
    assert.isAtMost(yield* least(5, cold), longest)
  })
})
