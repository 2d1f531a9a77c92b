import * as NodeRuntime from "@effect/platform-node/NodeRuntime"
import * as NodeServices from "@effect/platform-node/NodeServices"
import { Effect, Runtime } from "effect"
import { CliConfig, Command, GlobalFlag } from "effect/cli"
import { byok } from "./cli/Commands.ts"
import { exitCodeOf } from "./cli/exitCodeOf.ts"
import { presenterLayer } from "./cli/Output.ts"
import * as Environment from "./wiring/Environment.ts"
import * as Logging from "./wiring/Logging.ts"
import { version } from "./wiring/OtlpSettings.ts"

/** The flags of every command. Settings, such as LOG_LEVEL, are environment variables only. */
const globalFlags = CliConfig.layer({ builtIns: [GlobalFlag.Help, GlobalFlag.Version, GlobalFlag.Completions] })

/** Runs a command line, prints its result or failure, and returns the exit code. */
export const run = (args: ReadonlyArray<string>): Effect.Effect<number> =>
  Command.runWith(byok, { version })(args).pipe(
    Effect.as(0),
    Effect.provide([NodeServices.layer, presenterLayer, globalFlags]),
    Effect.catchCause(exitCodeOf),
    Effect.provide(Logging.layer),
    // The settings of the log may be invalid.
    Effect.catchCause(exitCodeOf)
  )

/** Runs the command line of this process. SIGINT and SIGTERM end it with code 0 if it `serves`, else with 130. */
export const main = (serves: boolean) =>
  run(process.argv.slice(2)).pipe(
    Effect.map((code) => {
      process.exitCode = code
    }),
    Effect.provide(Environment.layer),
    NodeRuntime.runMain({
      disableErrorReporting: true,
      teardown: (exit, onExit) => Runtime.defaultTeardown(exit, (code) => onExit(serves && code === 130 ? 0 : code))
    })
  )
