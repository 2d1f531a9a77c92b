import { Effect, Layer } from "effect"
import { Command } from "effect/cli"
import { serve } from "../serve/serve.ts"
import { sighups } from "../serve/sighups.ts"
import * as KeyringLive from "../wiring/KeyringLive.ts"
import { readSettings } from "../wiring/Settings.ts"
import { root } from "./Arguments.ts"

export const serveCommand = Command.make(
  "serve",
  {},
  Effect.fnUntraced(function* () {
    const { json } = yield* root
    const signals = yield* sighups
    const settings = yield* readSettings
    return yield* Layer.launch(Layer.provide(serve(settings, signals, json), KeyringLive.validate(settings)))
  }, Effect.scoped)
).pipe(Command.withDescription("Serve HTTP until stopped; SIGHUP reloads the keyring and the certificate"))
