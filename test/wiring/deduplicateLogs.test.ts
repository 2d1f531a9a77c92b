import { setImmediate } from "node:timers/promises"
import { ConfigProvider, Console, Effect, Layer, Logger } from "effect"
import * as Logging from "../../src/wiring/Logging.ts"
import { assert, it } from "../support/it.ts"
import { takeLog } from "../support/process/Recording.ts"

/** The lines written while the effect runs and when the loggers are released. */
const writtenBy = (effect: Effect.Effect<void>) =>
  Effect.gen(function* () {
    const lines: Array<string> = []
    const format = Logger.make((options) => void lines.push(Logger.formatLogFmt.log(options).replace(/^\S+ /, "")))
    yield* Effect.provide(effect, Logger.layer([Logging.deduplicateLogs(format)]))
    return lines.map((line) => line.replace(/fiber=\S+ /, ""))
  })

it.effect("repeated warnings and errors of one cause are written once, then counted in one line", function* () {
  const trouble = Effect.gen(function* () {
    for (let n = 0; n < 3; n += 1) {
      yield* Effect.logError("Unexpected failure", new Error("one"))
      yield* Effect.logError("Unexpected failure", new Error("other"))
      yield* Effect.logWarning("Not ready")
      yield* Effect.logInfo("Ready")
    }
  })
  const lines = yield* writtenBy(Effect.annotateLogs(trouble, { request_id: "request-1" }))
  assert.lengthOf(lines, 9)
  assert.lengthOf(
    lines.filter((line) => line.includes("message=Ready")),
    3
  )
  assert.deepStrictEqual(
    lines.slice(-3).map((line) => /^level=(\w+) message="(.*)"$/.exec(line)?.slice(1)),
    [
      ["ERROR", "Unexpected failure Error one (2 more in the last second; request_id: request-1)"],
      ["ERROR", "Unexpected failure Error other (2 more in the last second; request_id: request-1)"],
      ["WARN", "Not ready (2 more in the last second; request_id: request-1)"]
    ]
  )
})

it.effect("the line that counts omitted lines names up to 20 of their requests (C2)", function* () {
  const ids = Array.from({ length: 30 }, (_, n) => `request-${n}`)
  const lines = yield* writtenBy(
    Effect.forEach(ids, (request_id) => Effect.annotateLogs(Effect.logError("Gone"), { request_id }), {
      discard: true
    })
  )
  assert.lengthOf(lines, 2)
  assert.include(lines[0], "request-0")
  assert.include(lines[1], `Gone (29 more in the last second; request_id: ${ids.slice(1, 21).join(", ")})`)
})

it.effect.each(["pretty", "logfmt", "json"])("logs in %s go to standard error only (C2)", function* (LOG_FORMAT) {
  const out: Array<unknown> = []
  const log = (...parts: ReadonlyArray<unknown>) => void out.push(...parts)
  const taken = takeLog()
  const repeat = Effect.andThen(
    Effect.promise(() => setImmediate()),
    Effect.forEach([1, 2, 3], () => Effect.logError("Gone"))
  )
  yield* Effect.provide(repeat, Layer.fresh(Logging.layer)).pipe(
    Effect.provide(taken.layer),
    Effect.provideService(ConfigProvider.ConfigProvider, ConfigProvider.fromEnv({ env: { LOG_FORMAT } })),
    Effect.provideService(Console.Console, { ...console, log, info: log, error: log })
  )
  assert.deepStrictEqual(out, [])
  assert.include(taken.writes.join(""), "2 more in the last second")
})

it.effect(
  "log lines of further causes are counted together in one line, once the limit of causes is reached",
  function* () {
    const lines = yield* writtenBy(
      Effect.forEach(
        Array.from({ length: 1000 }, (_, n) => n),
        (n) => Effect.logError(`cause ${n}`),
        { discard: true }
      )
    )
    assert.lengthOf(lines, 52)
    assert.include(lines.at(-1), "Other causes (949 more in the last second)")
  }
)

it.live.each(["pretty", "logfmt", "json"])("logging any value twice does not fail in format %s", (LOG_FORMAT) =>
  Effect.gen(function* () {
    const odd = [Object.create(null), Symbol("odd"), 1n, undefined, { toString: () => assert.fail("called") }]
    for (let n = 0; n < 2; n += 1) {
      for (const message of odd) yield* Effect.logWarning(message)
    }
  }).pipe(
    Effect.provide(Layer.fresh(Logging.layer)),
    Effect.provide(takeLog().layer),
    Effect.provideService(ConfigProvider.ConfigProvider, ConfigProvider.fromEnv({ env: { LOG_FORMAT } }))
  )
)
