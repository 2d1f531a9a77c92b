import { Effect, Layer } from "effect"
import * as RewrapperAes256Gcm from "../crypto/RewrapperAes256Gcm.ts"
import * as WrapBudget from "../crypto/WrapBudget.ts"
import * as KeyEncryptionLive from "../wiring/KeyEncryptionLive.ts"
import * as KeyringLive from "../wiring/KeyringLive.ts"
import { CurrentActor } from "../domain/Actor.ts"
import * as Persistence from "../wiring/Persistence.ts"
import { Rotation } from "../service/Rotation.ts"
import { readSettings } from "../wiring/Settings.ts"
import { cliActor } from "./cliActor.ts"
import { patiently } from "./patiently.ts"

/** Runs an operation on the database of the settings with their keyring. */
export const rotate = <A, E>(operation: (rotation: Rotation["Service"]) => Effect.Effect<A, E>) =>
  Effect.flatMap(readSettings, (settings) =>
    Effect.provide(
      Effect.flatMap(Rotation, operation),
      Rotation.layer.pipe(
        Layer.provide(RewrapperAes256Gcm.layer),
        Layer.provide(WrapBudget.layer),
        Layer.provide(KeyEncryptionLive.layer(settings)),
        Layer.provide(KeyringLive.layer(settings)),
        Layer.provide(Persistence.layer(patiently(settings))),
        Layer.provide(KeyringLive.layerForm(settings))
      )
    )
  ).pipe(Effect.provideService(CurrentActor, cliActor()))
