import cluster from "node:cluster"
import { Effect, Layer } from "effect"
import { Command } from "effect/cli"
import { sighups } from "../serve/sighups.ts"
import * as KeyringLive from "../wiring/KeyringLive.ts"
import { serve } from "../serve/serve.ts"
import { serveInProcesses } from "../serve/serveInProcesses.ts"
import { readSettings } from "../wiring/Settings.ts"

/** A worker process would not exit while its channel to the primary process is open. */
const disconnect = Effect.sync(() => cluster.worker?.disconnect())

export const serveCommand = Command.make(
  "serve",
  {},
  Effect.fnUntraced(
    function* () {
      const signals = yield* sighups
      const settings = yield* readSettings
      const several = cluster.isPrimary && settings.processes > 1
      const service = several ? serveInProcesses(settings, signals) : serve(settings, signals)
      return yield* Layer.launch(Layer.provide(service, KeyringLive.validate(settings)))
    },
    Effect.scoped,
    Effect.ensuring(disconnect)
  )
).pipe(Command.withDescription("Serve HTTP until stopped; SIGHUP reloads the keyring"))
