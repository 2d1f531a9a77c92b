import { Effect, Layer } from "effect"
import { Command } from "effect/cli"
import { serve } from "../serve/serve.ts"
import { readSettings } from "../wiring/Settings.ts"
import { root } from "./Arguments.ts"

export const serveCommand = Command.make("serve", {}, () =>
  Effect.flatMap(Effect.all([root, readSettings]), ([{ json }, settings]) => Layer.launch(serve(settings, json)))
).pipe(Command.withDescription("Serve HTTP until stopped; SIGHUP reloads the keyring and the certificate"))
