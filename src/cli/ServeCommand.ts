import { Effect, Layer } from "effect"
import { Command } from "effect/cli"
import { serve } from "../serve/serve.ts"
import { readSettings } from "../wiring/Settings.ts"
import { root } from "./Arguments.ts"

export const serveCommand = Command.make(
  "serve",
  {},
  Effect.fnUntraced(function* () {
    const { json } = yield* root
    const settings = yield* readSettings
    return yield* Layer.launch(serve(settings, json))
  })
).pipe(Command.withDescription("Serve HTTP until stopped; SIGHUP reloads the keyring and the certificate"))
