import { Cause, ConfigProvider, Effect, Exit, Layer } from "effect"
import { TestConsole } from "effect/testing"
import * as Logging from "../../src/wiring/Logging.ts"
import { InvalidSetting } from "../../src/wiring/Settings.ts"
import { assert, describe, it } from "../support/it.ts"

/** What is written where when these settings log at every level. */
const logWith = (variables: Record<string, string>) =>
  Effect.gen(function* () {
    yield* Effect.logDebug("a debug message")
    yield* Effect.logInfo("an info message")
    yield* Effect.logError("an error message")
    return { stdout: (yield* TestConsole.logLines).join("\n"), stderr: (yield* TestConsole.errorLines).join("\n") }
  }).pipe(
    Effect.provide(Logging.layer),
    Effect.provideService(ConfigProvider.ConfigProvider, ConfigProvider.fromEnv({ env: variables }))
  )

const formats: Record<string, RegExp> = {
  pretty: /^\[\d{4}-\d\d-\d\dT[\d:.]{12}Z\] INFO \(#\d+\): an info message$/m,
  logfmt: /^timestamp=\S+ level=INFO fiber=#\d+ message="an info message" version=\S+ instance=[0-9a-f-]{36}$/im,
  json: /^\{.*"message":"an info message".*"version":"[\d.]+","instance":"[0-9a-f-]{36}"\}$/m
}

describe("logs", () => {
  it.effect.each(Object.entries(formats))("go to standard error only, in %s", function* ([LOG_FORMAT, line]) {
    const { stderr, stdout } = yield* logWith({ LOG_FORMAT })
    assert.match(stderr, line)
    assert.strictEqual(stdout, "")
  })

  it.effect("are pretty and of level info by default", function* () {
    for (const variables of [{}, { LOG_LEVEL: "", LOG_FORMAT: "" }]) {
      const { stderr } = yield* logWith(variables)
      assert.match(stderr, formats["pretty"] ?? /^$/)
      assert.notInclude(stderr, "a debug message")
    }
  })

  it.effect.each<readonly [level: string, messages: ReadonlyArray<string>]>([
    ["trace", ["a debug", "an info", "an error"]],
    ["debug", ["a debug", "an info", "an error"]],
    ["Info", ["an info", "an error"]],
    ["WARN", ["an error"]],
    ["error", ["an error"]],
    ["fatal", []],
    ["none", []]
  ])("at LOG_LEVEL=%s show %j", function* ([LOG_LEVEL, messages]) {
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
  ])("%j is refused in a sentence that names the setting without the value", function* ([variables, sentence]) {
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
