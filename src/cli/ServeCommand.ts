import cluster from "node:cluster"
import { Deferred, Effect, Layer } from "effect"
import { Command } from "effect/cli"
import { sighups } from "../serve/sighups.ts"
import * as KeyringLive from "../wiring/KeyringLive.ts"
import { serve } from "../serve/serve.ts"
import { reportHarmful, serveInProcesses } from "../serve/serveInProcesses.ts"
import { type InvalidSetting, readSettings } from "../wiring/Settings.ts"
import { root } from "./Root.ts"

/** A worker process would not exit while its channel to the primary process is open. */
const disconnect = Effect.sync(() => cluster.worker?.disconnect())

export const serveCommand = Command.make(
  "serve",
  {},
  Effect.fnUntraced(
    function* () {
      const { json } = yield* root
      const signals = yield* sighups
      const settings = yield* readSettings
      const several = cluster.isPrimary && settings.processes > 1
      const lost = yield* Deferred.make<never, InvalidSetting>()
      const service = several ? serveInProcesses(settings, signals, lost) : serve(settings, signals, json)
      const launched = Layer.launch(Layer.provide(service, KeyringLive.validate(settings)))
      return yield* Effect.raceFirst(launched, Deferred.await(lost))
    },
    Effect.scoped,
    Effect.tapErrorTag("InvalidSetting", reportHarmful),
    Effect.ensuring(disconnect)
  )
).pipe(Command.withDescription("Serve HTTP until stopped; SIGHUP reloads the keyring and the certificate"))
