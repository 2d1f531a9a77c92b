import { Effect, Layer } from "effect"
import { CurrentActor } from "../domain/Actor.ts"
import * as KeyringLive from "../wiring/KeyringLive.ts"
import * as Persistence from "../wiring/Persistence.ts"
import type { KekRegistry } from "../port/KekRegistry.ts"
import { readSettings, type Settings } from "../wiring/Settings.ts"
import { cliActor } from "./cliActor.ts"
import { patiently } from "./patiently.ts"

/** Runs a change of the keyring file against the database of the settings. */
export const changeKeyring = <A, E>(change: (settings: Settings) => Effect.Effect<A, E, KekRegistry>) =>
  Effect.flatMap(readSettings, (settings) =>
    Effect.provide(
      change(settings),
      Layer.provide(Persistence.layer(patiently(settings)), KeyringLive.layerForm(settings))
    )
  ).pipe(Effect.provideService(CurrentActor, cliActor()))
