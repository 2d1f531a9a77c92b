import { Config, Effect, Layer, Logger, Option, References } from "effect"
import { InvalidSetting } from "./Settings.ts"

const formats = {
  pretty: Logger.consolePretty(),
  logfmt: Logger.withConsoleError(Logger.formatLogFmt),
  json: Logger.withConsoleError(Logger.formatJson)
}
const levels = ["Trace", "Debug", "Info", "Warn", "Error", "Fatal", "None"] as const

/** Logs go to standard error, in the level and format of `LOG_LEVEL` and `LOG_FORMAT`. */
export const layer = Layer.unwrap(
  Effect.gen(function* () {
    const given = yield* Config.option(Config.String("LOG_LEVEL"))
    const level = levels.find((name) => name.toLowerCase() === Option.getOrElse(given, () => "info").toLowerCase())
    if (level === undefined) {
      return yield* new InvalidSetting({ message: `LOG_LEVEL must be one of ${levels.join(", ").toLowerCase()}.` })
    }
    const format = Option.getOrElse(yield* Config.option(Config.String("LOG_FORMAT")), () => "pretty")
    if (format !== "pretty" && format !== "logfmt" && format !== "json") {
      return yield* new InvalidSetting({ message: "LOG_FORMAT must be pretty, logfmt or json." })
    }
    return Layer.mergeAll(
      Logger.layer([formats[format]]),
      Layer.succeed(References.MinimumLogLevel, level),
      Layer.succeed(Logger.LogToStderr, true)
    )
  }).pipe(Effect.catchTag("ConfigError", Effect.die))
)
