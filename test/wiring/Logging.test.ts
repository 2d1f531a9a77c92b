import { Cause, ConfigProvider, Effect, Exit, Layer, Logger, Redacted } from "effect"
import { TestConsole } from "effect/testing"
import * as Logging from "../../src/wiring/Logging.ts"
import { InvalidSetting } from "../../src/wiring/Settings.ts"
import { assert, describe, it } from "../support/it.ts"
import { takeLog } from "../support/process/Recording.ts"

/** The lines that these settings write to each stream, at every level. */
const logWith = (variables: Record<string, string>) =>
  Effect.gen(function* () {
    const { layer, writes } = takeLog()
    yield* Effect.gen(function* () {
      yield* Effect.logDebug("a debug message")
      yield* Effect.logInfo("an info message")
      yield* Effect.logError("an error message")
      const failure = Cause.fail(new Error("it is away"))
      yield* Effect.logWarning("a warning", failure)
      yield* Effect.logError("an error", failure)
    }).pipe(
      Effect.provide(Layer.fresh(Logging.layer).pipe(Layer.provide(layer))),
      Effect.provideService(ConfigProvider.ConfigProvider, ConfigProvider.fromEnv({ env: variables }))
    )
    return { stdout: (yield* TestConsole.logLines).join("\n"), stderr: writes.join("") }
  })

const formats: Record<string, RegExp> = {
  pretty: /^\[\d{4}-\d\d-\d\dT[\d:.]{12}Z\] INFO \(#\d+\): an info message$/m,
  logfmt: /^timestamp=\S+ level=INFO fiber=#\d+ message="an info message" version=\S+ instance=[0-9a-f-]{36}$/im,
  json: /^\{.*"message":"an info message".*"version":"[\d.]+","instance":"[0-9a-f-]{36}"\}$/m
}

describe("the logger", () => {
  it.effect.each(Object.entries(formats))("writes only to standard error in format %s", function* ([LOG_FORMAT, line]) {
    const { stderr, stdout } = yield* logWith({ LOG_FORMAT })
    assert.match(stderr, line)
    assert.strictEqual(stdout, "")
  })

  it.effect("writes the same JSON fields as Effect's logger, without secrets", function* () {
    const secret = Redacted.make("canary")
    const circle: Record<string, unknown> = { secret }
    circle["circle"] = circle
    const annotations = [
      { text: 'a "quoted"\n\u2028 text', number: 1.5, nothing: Number.NaN, flag: true },
      { secret, circle }
    ]
    const { layer, writes } = takeLog()
    const made: Array<Record<string, unknown>> = []
    const effects = Logger.make((options) => {
      const { fiberId: _, ...entry } = JSON.parse(Logger.formatJson.log(options)) as Record<string, unknown>
      made.push(entry)
    })
    const say = Effect.forEach([...annotations, {}], (each) => Effect.annotateLogs(Effect.logInfo("said"), each))
    yield* say.pipe(Effect.provide(Logger.layer([effects])))
    yield* Effect.andThen(say, Effect.logInfo(secret, circle)).pipe(
      Effect.provide(Layer.fresh(Logging.layer).pipe(Layer.provide(layer))),
      Effect.provideService(ConfigProvider.ConfigProvider, ConfigProvider.fromEnv({ env: { LOG_FORMAT: "json" } }))
    )
    const lines = writes.join("").trimEnd().split("\n")
    assert.lengthOf(lines, 4)
    assert.notInclude(lines.join(""), "canary")
    assert.deepStrictEqual(
      lines.slice(0, 3).map((line) => {
        const { fiberId: _, instance, version, ...entry } = JSON.parse(line) as Record<string, unknown>
        assert.isDefined(instance ?? version)
        return entry
      }),
      made
    )
  })

  it.effect("writes a stack after an error but not after a warning, in format pretty", function* () {
    const { stderr } = yield* logWith({})
    assert.match(stderr, /WARN \(#\d+\): a warning: Error it is away\n\[/)
    assert.match(stderr, /ERROR \(#\d+\): an error\n.*Error: it is away\n +at /)
  })

  it.effect("has format pretty and level info by default", function* () {
    for (const variables of [{}, { LOG_LEVEL: "", LOG_FORMAT: "" }]) {
      const { stderr } = yield* logWith(variables)
      assert.match(stderr, formats["pretty"] ?? /^$/)
      assert.notInclude(stderr, "a debug message")
    }
  })

  it.effect.each<readonly [level: string, written: string, messages: ReadonlyArray<string>]>([
    ["trace", "debug, info and error messages", ["a debug", "an info", "an error"]],
    ["debug", "debug, info and error messages", ["a debug", "an info", "an error"]],
    ["Info", "info and error messages, but no debug message", ["an info", "an error"]],
    ["WARN", "error messages, but no debug or info message", ["an error"]],
    ["error", "error messages, but no debug or info message", ["an error"]],
    ["fatal", "no debug, info or error message", []],
    ["none", "no debug, info or error message", []]
  ])("at LOG_LEVEL=%s writes %s", function* ([LOG_LEVEL, , messages]) {
    const { stderr } = yield* logWith({ LOG_LEVEL })
    const shown = ["a debug", "an info", "an error"].filter((message) => stderr.includes(`${message} message`))
    assert.deepStrictEqual(shown, messages)
  })

  it.effect.each<readonly [variables: Record<string, string>, sentence: string]>([
    [{ LOG_LEVEL: "canary" }, "LOG_LEVEL must be one of trace, debug, info, warn, error, fatal, none."],
    [
      { OTEL_RESOURCE_ATTRIBUTES: "canary" },
      "OTEL_RESOURCE_ATTRIBUTES must be pairs such as key=value, separated by commas, their values percent-encoded."
    ],
    [{ LOG_FORMAT: "canary" }, "LOG_FORMAT must be pretty, logfmt or json."]
  ])("refuses %j in a sentence that names the setting, not the value", function* ([variables, sentence]) {
    const build = Effect.scoped(Layer.build(Layer.fresh(Logging.layer)))
    const exit = yield* Effect.exit(
      Effect.provideService(build, ConfigProvider.ConfigProvider, ConfigProvider.fromEnv({ env: variables }))
    )
    assert(Exit.isFailure(exit))
    const error = Cause.squash(exit.cause)
    assert.instanceOf(error, InvalidSetting)
    assert.strictEqual(error.message, sentence)
  })
})
