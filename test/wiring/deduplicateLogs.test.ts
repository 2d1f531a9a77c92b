import { assert, it } from "@effect/vitest"
import { ConfigProvider, Effect, Layer, Logger } from "effect"
import { deduplicateLogs } from "../../src/wiring/deduplicateLogs.ts"
import * as Logging from "../../src/wiring/Logging.ts"

/** What is written while the effect runs and when the loggers are released. */
const writtenBy = (effect: Effect.Effect<void>) =>
  Effect.gen(function* () {
    const lines: Array<string> = []
    const format = Logger.make((options) => void lines.push(Logger.formatLogFmt.log(options).replace(/^\S+ /, "")))
    yield* Effect.provide(effect, Logger.layer([deduplicateLogs(format)]))
    return lines.map((line) => line.replace(/fiber=\S+ /, ""))
  })

it.effect("of warnings and errors the first line of each cause is written, and the number of the others", () =>
  Effect.gen(function* () {
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
        ["ERROR", "Unexpected failure Error one (2 more in the last second)"],
        ["ERROR", "Unexpected failure Error other (2 more in the last second)"],
        ["WARN", "Not ready (2 more in the last second)"]
      ]
    )
  })
)

it.effect("however many causes there are, few are told apart at a time", () =>
  Effect.gen(function* () {
    const lines = yield* writtenBy(
      Effect.forEach(
        Array.from({ length: 1000 }, (_, n) => n),
        (n) => Effect.logError(`cause ${n}`),
        { discard: true }
      )
    )
    assert.lengthOf(lines, 52)
    assert.include(lines.at(-1), "Other causes (949 more in the last second)")
  })
)

it.live.each(["pretty", "logfmt", "json"])("anything can be said twice in the format %s", (LOG_FORMAT) =>
  Effect.gen(function* () {
    const odd = [Object.create(null), Symbol("odd"), 1n, undefined, { toString: () => assert.fail("called") }]
    for (let n = 0; n < 2; n += 1) {
      for (const message of odd) yield* Effect.logWarning(message)
    }
  }).pipe(
    Effect.provide(Layer.fresh(Logging.layer)),
    Effect.provideService(ConfigProvider.ConfigProvider, ConfigProvider.fromEnv({ env: { LOG_FORMAT } }))
  )
)
