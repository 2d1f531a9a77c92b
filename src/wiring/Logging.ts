import { Config, Effect, Layer, Logger, Option, References } from "effect"
import { InvalidSetting } from "./Environment.ts"
import { limitRepeats } from "./limitRepeats.ts"
import { logFormats } from "./logFormats.ts"
import { readServiceResource } from "./OtlpSettings.ts"

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
    const { attributes, serviceVersion: version } = yield* readServiceResource
    const logger = logFormats[format]({ version, instance: attributes["service.instance.id"] })
    return Layer.mergeAll(
      Logger.layer([limitRepeats(logger)]),
      Layer.succeed(References.MinimumLogLevel, level),
      Layer.succeed(Logger.LogToStderr, true)
    )
  }).pipe(Effect.catchTag("ConfigError", Effect.die))
)
